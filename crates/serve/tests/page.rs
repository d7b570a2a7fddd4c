//! The page as a browser gets it.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use support::{get, post, serve};

#[test]
fn the_page_is_there_without_a_key_and_may_run_nothing_but_itself() {
    let server = serve(|_| (), |options| options.keys = vec!["first".to_owned()]);
    let page = get(server.address, "/");
    assert_eq!(page.status, 200);
    assert!(page.body.starts_with("<!doctype html>"));
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let policy = &page.headers["content-security-policy"];
    for word in ["default-src 'none'", "script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(word), "{word} in {policy}");
    }
    assert_eq!(get(server.address, "/v1/models").status, 401);
    assert_eq!(post(server.address, "/", &serde_json::json!({})).status, 405);
}
