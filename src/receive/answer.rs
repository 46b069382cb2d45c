//! Last steps of the walk: a handler's response, kept so that a repeat gets the same, and the same given again.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header, response};
use http_body::Body;
use http_body_util::BodyExt;

use super::rejection::PROBLEM;
use super::response::BoxError;
use super::{Rejection, ResponseBody};
use crate::store::{Repeat, ResultBody, StoredResult};

/// Says on a repeated answer that the handler was not run for it.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// How much of an answer is kept.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    /// The largest body.
    pub(super) body_bytes: usize,
    /// Names of headers, beside those that [`worth_repeating`] knows.
    pub(super) headers: Vec<HeaderName>,
}

/// A handler's response with its beginning in memory.
pub(super) struct Answer {
    pub(super) response: Response<ResponseBody>,
    pub(super) stored: StoredResult,
}

impl Answer {
    /// The answer in the place of a handler that gave none. It is kept like any other.
    pub(super) fn refusal(rejection: Rejection) -> Self {
        let stored = StoredResult {
            status: rejection.status(),
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, PROBLEM)]),
            body: ResultBody::Kept(rejection.body()),
        };
        Self { response: rejection.into_response(), stored }
    }

    /// What was recorded in the handler's own transaction, in the place of an answer that says something else.
    pub(super) fn or_recorded(self, recorded: StoredResult) -> Self {
        if self.stored.status == recorded.status {
            return self;
        }
        Self { response: again(recorded.clone()), stored: recorded }
    }
}

/// Reads a response as far as it can be kept. One that is longer goes on to the sender unharmed, and is kept as a
/// status without a body.
///
/// # Errors
///
/// The handler's own, from its body.
pub(super) async fn capture<B>(response: Response<B>, keep: &Keep) -> Result<Answer, BoxError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let mut body = Box::pin(body);
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut too_long = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
        too_long = first.len() + joined.len() + data.len() > keep.body_bytes;
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
                first = Bytes::new();
            }
            joined.extend_from_slice(&data);
        }
        if too_long {
            break;
        }
    }
    let read = if joined.is_empty() { first } else { joined.freeze() };

    let stored = stored(&parts, &read, keep);
    let body = if too_long { ResponseBody::resumed(read, body) } else { ResponseBody::full(read) };
    Ok(Answer { response: Response::from_parts(parts, body), stored })
}

/// What is kept of a response whose body is this, or begins with it where it is too long.
pub(super) fn stored(parts: &response::Parts, body: &Bytes, keep: &Keep) -> StoredResult {
    StoredResult {
        status: parts.status,
        headers: kept_headers(&parts.headers, keep),
        body: if body.len() > keep.body_bytes { ResultBody::Omitted } else { ResultBody::Kept(body.clone()) },
    }
}

/// The stored answer, once more, marked as a repeat. `None` where no run lived to answer.
pub(super) fn replay(repeat: Repeat) -> Option<Response<ResponseBody>> {
    let mut response = again(repeat.result?);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Some(response)
}

fn again(stored: StoredResult) -> Response<ResponseBody> {
    let (body, bodiless) = match stored.body {
        ResultBody::Kept(bytes) => (ResponseBody::full(bytes), false),
        ResultBody::Omitted => (ResponseBody::empty(), true),
    };
    let mut response = Response::new(body);
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers;
    if bodiless {
        // An empty body is no gzip and no JSON, and a client that is told so may take it for a failure.
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            response.headers_mut().remove(name);
        }
    }
    response
}

fn kept_headers(headers: &HeaderMap, keep: &Keep) -> HeaderMap {
    let mut kept = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in headers {
        if !(worth_repeating(name) || keep.headers.contains(name)) || is_hop_by_hop(name, headers) {
            continue;
        }
        bytes += name.as_str().len() + value.len();
        if bytes > MAX_HEADER_BYTES {
            tracing::debug!(%name, "this header of the answer and those after it are too long to keep");
            break;
        }
        kept.append(name, value.clone());
    }
    kept
}

/// Headers that describe the answer itself, and those that an application made up.
fn worth_repeating(name: &HeaderName) -> bool {
    const DESCRIBING: [HeaderName; 9] = [
        header::CACHE_CONTROL,
        header::CONTENT_DISPOSITION,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_TYPE,
        header::ETAG,
        header::LAST_MODIFIED,
        header::LINK,
        header::LOCATION,
    ];
    DESCRIBING.contains(name) || name.as_str().starts_with("x-")
}

/// Headers that belong to one exchange or one client. They are never repeated, even when they are asked for.
pub(super) fn never_repeated(name: &HeaderName) -> bool {
    const NEVER: [HeaderName; 12] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::DATE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    NEVER.contains(name)
}

/// Whether `Connection` names it: then it was meant for the next peer alone.
fn is_hop_by_hop(name: &HeaderName, headers: &HeaderMap) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case(name.as_str()))
}

/// How many bytes of headers are kept with a result.
const MAX_HEADER_BYTES: usize = 16 * 1024;
