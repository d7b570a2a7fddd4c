//! `/`: the page for people, one file in the binary. It asks the same interface as everybody else; its policy lets it run its
//! own script and style, known by their hashes, and reach this server, and nothing more.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// The page.
pub(crate) const PAGE: &str = include_str!("page.html");

/// What a browser may do with the page.
fn policy() -> String {
    let script = hash(between(PAGE, "<script>", "</script>"));
    let style = hash(between(PAGE, "<style>", "</style>"));
    format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// The headers that go with it.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 5] {
    static POLICY: OnceLock<HeaderValue> = OnceLock::new();
    // Hashes are plain characters, so that the other one is never taken; it allows nothing.
    let policy = POLICY.get_or_init(|| {
        HeaderValue::from_str(&policy()).unwrap_or(HeaderValue::from_static("default-src 'none'"))
    });
    let fixed = HeaderValue::from_static;
    [
        (header::CONTENT_SECURITY_POLICY, policy.clone()),
        (header::CACHE_CONTROL, fixed("no-cache")),
        (header::REFERRER_POLICY, fixed("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (HeaderName::from_static("cross-origin-opener-policy"), fixed("same-origin")),
    ]
}

fn between<'a>(text: &'a str, opens: &str, closes: &str) -> &'a str {
    let rest = text.split_once(opens).map_or("", |(_, rest)| rest);
    rest.split_once(closes).map_or("", |(inside, _)| inside)
}

/// A source as policies name it.
fn hash(source: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(source.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_what_the_page_runs_and_nothing_else() {
        assert_eq!(hash("alert(1)"), "sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=");
        let policy = policy();
        assert!(!policy.contains("unsafe") && !policy.contains(&hash("")), "{policy}");
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
    }

    /// Answers are hostile text: what could make nodes of it, or run it, is not in the page.
    #[test]
    fn the_page_never_parses_text_as_html_and_loads_nothing_from_elsewhere() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        let markup = PAGE.replace(between(PAGE, "<script>", "</script>"), "");
        for word in [" onclick=", " onload=", " onerror=", "style=\"", "src=\"", "@import", "url("] {
            assert!(!markup.contains(word), "{word}");
        }
    }
}
