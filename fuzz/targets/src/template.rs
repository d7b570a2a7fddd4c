//! Any text as a chat template, with any conversation: a text or an error, within the budgets.
//!
//! What stands before the first zero byte is the template, what stands behind it the variables as a JSON object.

use crate::templates::{check, input};

/// One input.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let Ok(source) = std::str::from_utf8(parts.next().unwrap_or_default()) else { return };
    check(source, &input(parts.next().unwrap_or_default()));
}
