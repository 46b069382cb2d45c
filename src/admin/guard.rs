//! Who gets in, and from where a change may come.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::Admin;
use super::fault::{Fault, Problem, Sorry};
use super::page::{self, Frame};
use super::session::{SESSION, Sessions};

/// Why an [`Admin`](super::Admin) could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes")]
    NoRandomness,
    /// It could be guessed.
    #[error("an admin token of {0} bytes: take 16 or more, for example from `openssl rand -hex 32`")]
    TooShort(usize),
    /// It holds what a header cannot hold.
    #[error("an admin token may hold visible ASCII characters only, and no spaces")]
    Unprintable,
}

/// What stands in front of every page and call.
pub(super) struct Guard {
    who: Who,
    /// So many requests are answered at one time: people's lists must not take the store from the work.
    turns: Semaphore,
    sessions: Sessions,
}

enum Who {
    /// Whoever knows the token.
    Token(Zeroizing<String>),
    /// Whoever the application lets through.
    Application,
    /// Whoever is on this machine.
    Loopback,
}

/// Hidden: it lets in.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.who {
            Who::Token(_) => "Guard::Token(..)",
            Who::Application => "Guard::Application",
            Who::Loopback => "Guard::Loopback",
        })
    }
}

impl Guard {
    /// The least length of a token, in bytes.
    const MIN_TOKEN_BYTES: usize = 16;

    pub(super) fn token(token: &str) -> Result<Self, TokenError> {
        if token.len() < Self::MIN_TOKEN_BYTES {
            return Err(TokenError::TooShort(token.len()));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Unprintable);
        }
        let sessions = Sessions::of_token(token);
        Ok(Self { who: Who::Token(Zeroizing::new(token.to_owned())), turns: Semaphore::new(TURNS), sessions })
    }

    pub(super) fn application() -> Result<Self, TokenError> {
        Self::open(Who::Application)
    }

    pub(super) fn loopback() -> Result<Self, TokenError> {
        Self::open(Who::Loopback)
    }

    fn open(who: Who) -> Result<Self, TokenError> {
        Ok(Self { who, turns: Semaphore::new(TURNS), sessions: Sessions::of_process()? })
    }

    /// Who asks, or why they may not.
    fn admit(&self, request: &Parts) -> Result<Visitor, Fault> {
        let headers = &request.headers;
        if matches!(self.who, Who::Loopback) && !asks_for_this_machine(request) {
            return Err(Fault::Forbidden(
                "only requests for localhost or an address of loopback are answered here, and none that a proxy passed on",
            ));
        }
        let Who::Token(token) = &self.who else {
            let visitor = Visitor { csrf: self.sessions.form_token(""), has_session: false, is_known: true };
            return visitor.checked(request);
        };
        if let Some(shown) = bearer(headers) {
            // No browser sends this by itself, so no other site can make one do it.
            let is_known = bool::from(shown.as_bytes().ct_eq(token.as_bytes()));
            if !is_known {
                tracing::warn!("somebody sent another token");
            }
            return Ok(Visitor { csrf: String::new(), has_session: false, is_known });
        }
        // Whoever is not known gets nothing that was made from the token: it would be a way to try tokens in peace.
        let session = sessions(headers).find(|session| self.sessions.is_live(session));
        let csrf = session.map_or_else(String::new, |session| self.sessions.form_token(session));
        Visitor { csrf, has_session: session.is_some(), is_known: session.is_some() }.checked(request)
    }
}

const COOKIE: &str = "countersign-admin";

const TURNS: usize = 2;

/// How long a form may take to arrive: it is a few hundred bytes.
const BODY_TIME: Duration = Duration::from_secs(10);

/// How long whoever showed a wrong token waits for the answer.
const PENALTY: Duration = Duration::from_millis(300);

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// For the forms of the pages that they get.
    pub(super) csrf: String,
    /// Whether there is something to log out of.
    pub(super) has_session: bool,
    is_known: bool,
}

impl Visitor {
    /// Refuses a change that a browser sends for another site.
    ///
    /// A browser says itself how the page and the target are related. Only where it does not, the names are compared, and a
    /// proxy may have changed ours. A program says neither.
    fn checked(self, request: &Parts) -> Result<Self, Fault> {
        if matches!(request.method, Method::GET | Method::HEAD) {
            return Ok(self);
        }
        let text = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let is_ours = match (text("sec-fetch-site"), text("origin")) {
            (Some(site), _) => matches!(site, "same-origin" | "none"),
            (None, Some(origin)) => {
                let asked = origin.split_once("://").and_then(|(_, asked)| asked.parse::<Authority>().ok());
                asked.is_some() && asked == authority(request)
            }
            (None, None) => true,
        };
        if is_ours { Ok(self) } else { Err(Fault::Forbidden("a change was asked for by another site")) }
    }
}

/// Every request comes by here.
pub(super) async fn stand(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    // As it is matched below a nested router, which has taken the mount's path away.
    let path = parts.uri.path();
    let (is_api, is_open) = (path.starts_with("/api/"), matches!(path, "/" | "/login" | "/style.css"));
    let response = match guard.admit(&parts) {
        Ok(visitor) if visitor.is_known || is_open => match bytes(body).await {
            Ok(bytes) => {
                // Whoever is not known gets nothing that asks the store, and must not take anybody's turn; whoever is slow
                // to send has none yet. It is never closed.
                let _turn = if visitor.is_known { guard.turns.acquire().await.ok() } else { None };
                parts.extensions.insert(visitor);
                next.run(Request::from_parts(parts, bytes.into())).await
            }
            Err(fault) if is_api => Problem(fault).into_response(),
            Err(fault) => Sorry(fault).into_response(),
        },
        Ok(_) if is_api => {
            if bearer(&parts.headers).is_some() {
                sleep(PENALTY).await;
            }
            Problem(Fault::Unauthorized).into_response()
        }
        // Relative, since the pages are siblings: what lies deeper is none of them.
        Ok(_) if is_page(path) => Redirect::to("login").into_response(),
        Ok(_) => Sorry(Fault::Unauthorized).into_response(),
        Err(fault) if is_api => Problem(fault).into_response(),
        Err(fault) => Sorry(fault).into_response(),
    };
    page::sealed(response)
}

/// A form or JSON text, when all of it is there.
async fn bytes(body: Body) -> Result<Bytes, Fault> {
    let limit = super::MAX_FORM_BYTES;
    match timeout(BODY_TIME, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Fault::Bad(format!("a body of more than {limit} bytes, or one that was cut off"))),
        Err(_elapsed) => Err(Fault::Bad(format!("a body that did not arrive within {BODY_TIME:?}"))),
    }
}

pub(super) fn router() -> Router<Admin> {
    Router::new().route("/login", get(ask).post(log_in)).route("/logout", post(log_out))
}

async fn ask(Extension(visitor): Extension<Visitor>) -> Response {
    if visitor.is_known {
        return Redirect::to("overview").into_response();
    }
    page::html(&page::Login { frame: Frame::new("Log in", &visitor), failed: false }).into_response()
}

async fn log_in(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
    form: Result<Form<LoginForm>, FormRejection>,
) -> Result<Response, Sorry> {
    let Form(LoginForm { token: shown }) = form?;
    let shown = Zeroizing::new(shown);
    let Who::Token(token) = &admin.guard.who else { return Ok(Redirect::to("overview").into_response()) };
    if !bool::from(shown.trim().as_bytes().ct_eq(token.as_bytes())) {
        tracing::warn!("somebody tried to log in with another token");
        sleep(PENALTY).await;
        let page = page::html(&page::Login { frame: Frame::new("Log in", &visitor), failed: true });
        return Ok((http::StatusCode::UNAUTHORIZED, page).into_response());
    }
    let begun = admin.guard.sessions.begin();
    let session = begun.map_err(|_| Fault::Forbidden("the operating system gives no random bytes for a session"))?;
    // Lax: a link in a message to the operator leads to the page. Changes are no links.
    let cookie = format!("{COOKIE}={session}; Max-Age={}; HttpOnly; SameSite=Lax", SESSION.as_secs());
    Ok((set_cookie(&cookie)?, Redirect::to("overview")).into_response())
}

#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

async fn log_out(State(admin): State<Admin>, headers: HeaderMap, _: Posted<Nothing>) -> Result<Response, Sorry> {
    // Here too, for whoever has a copy of the cookie.
    sessions(&headers).for_each(|session| admin.guard.sessions.end(session));
    let cookie = set_cookie(&format!("{COOKIE}=; Max-Age=0; HttpOnly; SameSite=Lax"))?;
    Ok((cookie, Redirect::to("login")).into_response())
}

#[derive(Deserialize)]
struct Nothing {}

fn set_cookie(cookie: &str) -> Result<[(header::HeaderName, HeaderValue); 1], Fault> {
    let value = HeaderValue::from_str(cookie).map_err(|_| Fault::Forbidden("a session that no header can hold"))?;
    Ok([(header::SET_COOKIE, value)])
}

/// A form that one of our pages showed to the one who sends it.
pub(super) struct Posted<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Admin> for Posted<T> {
    type Rejection = Sorry;

    async fn from_request(request: Request, admin: &Admin) -> Result<Self, Sorry> {
        let (mut parts, body) = request.into_parts();
        let visitor = visitor(&mut parts, admin).await?;
        let body = bytes(body).await?;
        let shown = url::form_urlencoded::parse(&body).find(|(name, _)| name == "csrf").map(|(_, value)| value);
        let is_ours = shown.is_some_and(|shown| shown.as_bytes().ct_eq(visitor.csrf.as_bytes()).into());
        if !is_ours || visitor.csrf.is_empty() {
            return Err(Fault::Forbidden("the form is out of date: go back, load the page again, and repeat").into());
        }
        let request = Request::from_parts(parts, body.into());
        let Form(form) = Form::from_request(request, &()).await?;
        Ok(Self(form))
    }
}

async fn visitor(parts: &mut Parts, admin: &Admin) -> Result<Visitor, Fault> {
    let found = Extension::<Visitor>::from_request_parts(parts, admin).await;
    found.map(|Extension(visitor)| visitor).map_err(|_| Fault::Unauthorized)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// All there are: another application of the same domain may have set one of this name.
fn sessions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter_map(|(name, value)| (name == COOKIE).then_some(value))
}

/// Whether it lies beside the other pages.
fn is_page(path: &str) -> bool {
    path.matches('/').count() == 1
}

/// Whether a request asks for this machine by a name of its own: `localhost` or an address of loopback.
///
/// For what an application serves on loopback without a guard, such as its metrics: a web page can have its own name point to
/// this machine, but then the request names that page's host. A proxy on this machine asks for an address of loopback too, for
/// whoever asked it; a request that says it came through one is not of this machine.
///
/// ```
/// use countersign::admin::asks_for_this_machine;
///
/// let asks = |host: &str| {
///     let request = http::Request::get("/metrics").header("host", host).body(()).expect("a request");
///     asks_for_this_machine(&request.into_parts().0)
/// };
/// assert!(asks("127.0.0.1:8081") && asks("localhost"));
/// assert!(!asks("rebound.example"));
/// ```
#[must_use]
pub fn asks_for_this_machine(request: &Parts) -> bool {
    const OF_PROXIES: [&str; 6] =
        ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];
    if OF_PROXIES.iter().any(|name| request.headers.contains_key(*name)) {
        return false;
    }
    let Some(authority) = authority(request) else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whom the request asks for: the header of HTTP/1.1, or what HTTP/2 says in its place.
fn authority(request: &Parts) -> Option<Authority> {
    match request.headers.get(header::HOST) {
        Some(host) => host.to_str().ok()?.parse().ok(),
        None => request.uri.authority().cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef-token";

    #[test]
    fn a_token_that_could_be_guessed_or_not_be_sent_is_refused() {
        assert_eq!(Guard::token("short").err(), Some(TokenError::TooShort(5)));
        assert_eq!(Guard::token("sixteen bytes or more").err(), Some(TokenError::Unprintable));
        assert!(Guard::token(TOKEN).is_ok());
    }

    #[test]
    fn only_names_of_this_machine_are_answered_on_loopback() {
        let guard = Guard::loopback().expect("a guard");
        let with = |host: &str| guard.admit(&parts(Request::get("/").header("host", host))).is_ok();
        for ours in ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]:80"] {
            assert!(with(ours), "{ours}");
        }
        for theirs in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]:80", "@"]
        {
            assert!(!with(theirs), "{theirs}");
        }
        assert!(guard.admit(&parts(Request::get("/"))).is_err());
        // As HTTP/2 has it.
        assert!(guard.admit(&parts(Request::get("http://localhost:1/"))).is_ok());
        assert!(guard.admit(&parts(Request::get("http://evil.example/"))).is_err());
    }

    #[test]
    fn c152_a_change_that_another_site_asks_for_is_refused() {
        let guard = Guard::application().expect("a guard");
        let with = |pairs: &[(&'static str, &'static str)]| {
            let request = pairs.iter().fold(Request::post("/"), |request, (name, value)| request.header(*name, *value));
            guard.admit(&parts(request)).is_ok()
        };
        assert!(with(&[]));
        assert!(with(&[("host", "ops.example"), ("origin", "https://ops.example"), ("sec-fetch-site", "same-origin")]));
        assert!(with(&[("host", "ops.example"), ("origin", "https://OPS.example")]));
        // A proxy put another name there; the browser knows better.
        assert!(with(&[("host", "backend:81"), ("origin", "https://ops.example"), ("sec-fetch-site", "same-origin")]));
        for theirs in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("host", "ops.example"), ("origin", "https://evil.example")],
            &[("host", "ops.example"), ("origin", "null")],
            &[("host", "ops.example"), ("origin", "https://ops.example"), ("sec-fetch-site", "cross-site")],
            &[("origin", "https://evil.example")],
        ] {
            assert!(!with(theirs), "{theirs:?}");
        }
    }

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).expect("a request").into_parts().0
    }
}
