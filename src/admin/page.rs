//! Pages: what frames each of them, and the headers that every answer gets.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::guard::Visitor;
use crate::{Clock, SystemClock, Timestamp};

/// What stands around a page's content.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) csrf: String,
    pub(super) has_session: bool,
    /// When the page was made: the times on it are to be read against this.
    pub(super) now: Timestamp,
}

impl Frame {
    pub(super) fn new(title: impl Into<String>, visitor: &Visitor) -> Self {
        let Visitor { csrf, has_session, .. } = visitor.clone();
        Self { title: title.into(), csrf, has_session, now: SystemClock.now() }
    }

    pub(super) fn without_forms(title: &str) -> Self {
        Self { title: title.to_owned(), csrf: String::new(), has_session: false, now: SystemClock.now() }
    }
}

/// The page that asks for the token.
#[derive(Debug, Template)]
#[template(path = "login.html")]
pub(super) struct Login {
    pub(super) frame: Frame,
    pub(super) failed: bool,
}

/// The page that says what went wrong.
#[derive(Debug, Template)]
#[template(path = "sorry.html")]
pub(super) struct Sorry<'a> {
    pub(super) frame: Frame,
    pub(super) text: &'a str,
}

pub(super) fn html(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(visible(&text)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// What would hide, or turn the direction of writing, is spelled out: whoever writes an id or an error must not make it
/// look like another one.
fn visible(page: &str) -> String {
    let is_odd = |one: char| {
        let turns = matches!(one, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}');
        turns || (one.is_control() && !matches!(one, '\n' | '\r' | '\t'))
    };
    let mut text = String::with_capacity(page.len());
    for one in page.chars() {
        if is_odd(one) { text.extend(one.escape_default()) } else { text.push(one) }
    }
    text
}

/// The looks of all pages, light and dark.
pub(super) async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("templates/style.css"))
}

/// Nothing runs, nothing is fetched from elsewhere, nothing is framed, and nothing is kept: whatever somebody managed to
/// write into an event stays text.
pub(super) fn sealed(mut response: Response) -> Response {
    const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; \
                                           base-uri 'none'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer` a browser would not say which site a form comes from either.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Bytes that came from elsewhere, for people: as text where they are text, and cut.
pub(super) fn readable(bytes: &[u8]) -> String {
    const MOST: usize = 16 * 1_024;
    let cut = bytes.get(..MOST).unwrap_or(bytes);
    let text = String::from_utf8_lossy(cut);
    if cut.len() == bytes.len() { text.into_owned() } else { format!("{text}… ({} bytes in all)", bytes.len()) }
}
