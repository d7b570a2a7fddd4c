//! Any text as a chat template, with any conversation: a text or an error, within the budgets.
//!
//! What stands before the first zero byte is the template, what stands behind it the variables as a JSON object.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pteron_fuzz::templates::{check, input};

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let Ok(source) = std::str::from_utf8(parts.next().unwrap_or_default()) else { return };
    check(source, &input(parts.next().unwrap_or_default()));
});
