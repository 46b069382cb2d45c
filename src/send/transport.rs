//! What goes out, what comes back, and who carries it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tower_service::Service;

use super::{Failure, Redirect};

/// One attempt to deliver one message: a request, and the limits that hold for it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Outgoing {
    /// The endpoint's URL, as it was signed: an `http` or `https` one in its canonical form ([`Target`](super::Target)), any
    /// other as it was given. [`HttpTransport`](super::HttpTransport) reads and checks it on each attempt; another transport
    /// may give it a meaning of its own.
    pub url: String,
    /// `POST` unless set.
    pub method: Method,
    /// All headers that are to be sent, the signature's among them.
    pub headers: HeaderMap,
    /// The payload, sent byte for byte.
    pub body: Bytes,
    /// How long the attempt may take until the answer's head is there, connecting included.
    pub head_timeout: Duration,
    /// How long the attempt may take in all. The answer's body is read for that long at most; what has come is kept.
    pub total_timeout: Duration,
    /// How many bytes of the answer's body are read and kept. More are not even received.
    pub answer_limit: usize,
}

impl Outgoing {
    /// A `POST` of these bytes, with 15 seconds for the head, 20 in all, and 16 KiB of the answer's body.
    pub fn new(url: impl Into<String>, headers: HeaderMap, body: impl Into<Bytes>) -> Self {
        Self {
            url: url.into(),
            method: Method::POST,
            headers,
            body: body.into(),
            head_timeout: Duration::from_secs(15),
            total_timeout: Duration::from_secs(20),
            answer_limit: 16 * 1024,
        }
    }

    /// Sets the method.
    #[must_use]
    pub fn with_method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets how long it may take until the answer's head is there, and in all.
    #[must_use]
    pub const fn with_timeouts(mut self, head: Duration, total: Duration) -> Self {
        self.head_timeout = head;
        self.total_timeout = total;
        self
    }

    /// Sets how many bytes of the answer's body are kept.
    #[must_use]
    pub const fn with_answer_limit(mut self, bytes: usize) -> Self {
        self.answer_limit = bytes;
        self
    }
}

/// Sizes and limits only: URL, headers and body can hold what is secret.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("method", &self.method)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("head_timeout", &self.head_timeout)
            .field("total_timeout", &self.total_timeout)
            .field("answer_limit", &self.answer_limit)
            .finish_non_exhaustive()
    }
}

/// What the receiver answered. Its status decides; the body is kept for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The beginning of the body, as it was sent: nothing is decompressed.
    pub body: Bytes,
    /// How the body ended.
    pub ending: Ending,
    /// Where it points, if it is a redirect.
    pub redirect: Option<Redirect>,
    /// The address that answered, where the transport knows one.
    pub address: Option<SocketAddr>,
}

/// How an answer's body ended. None of these changes what the status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It is all there.
    Complete,
    /// It was longer than what is kept.
    Cut,
    /// The connection failed.
    Failed,
    /// It went on for too long.
    TimedOut,
}

impl Answer {
    /// An answer without headers and body, as a transport that is not HTTP may give.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            ending: Ending::Complete,
            redirect: None,
            address: None,
        }
    }

    /// Sets the headers.
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>, ending: Ending) -> Self {
        self.body = body.into();
        self.ending = ending;
        self
    }

    /// Up to `limit` bytes of the body as text. A character that the limit would cut in two is left out, what is no
    /// UTF-8 is replaced, and control characters other than line breaks and tabs with it.
    #[must_use]
    pub fn snippet(&self, limit: usize) -> String {
        let kept = self.body.get(..limit).unwrap_or(&self.body);
        let was_cut = kept.len() < self.body.len() || self.ending != Ending::Complete;
        let mut text = String::with_capacity(kept.len());
        let mut chunks = kept.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            // Bytes that the cut took the rest of are not wrong; others are.
            let was_cut_here = was_cut && chunks.peek().is_none() && begins_a_character(chunk.invalid());
            if !chunk.invalid().is_empty() && !was_cut_here {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t'), "\u{fffd}")
    }
}

/// For example `503 Service Unavailable`, with where it leads for a redirect.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        if let Some(reason) = self.status.canonical_reason() {
            write!(f, " {reason}")?;
        }
        match &self.redirect {
            Some(redirect) => write!(f, ", {redirect}"),
            None => Ok(()),
        }
    }
}

/// Whether more bytes could have made a character of these: they were cut, and were not wrong.
fn begins_a_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// The future of an attempt.
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;

/// Carries messages: [`HttpTransport`](super::HttpTransport), or any Tower service that takes an [`Outgoing`], such as a
/// client of a broker, a test double, or a stack of layers around the HTTP one.
///
/// ```
/// use countersign::send::{Answer, Failure, Outgoing, Transport};
/// use http::StatusCode;
///
/// async fn carry(outgoing: Outgoing) -> Result<Answer, Failure> {
///     println!("{} bytes", outgoing.body.len());
///     Ok(Answer::new(StatusCode::ACCEPTED))
/// }
///
/// fn takes_a_transport(_: impl Transport) {}
/// takes_a_transport(tower::service_fn(carry));
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Makes one attempt.
    ///
    /// # Errors
    ///
    /// [`Failure`] where there was no answer.
    ///
    /// # Cancel safety
    ///
    /// A dropped attempt ends at once. What was sent by then may have been received.
    fn send(&self, outgoing: Outgoing) -> SendFuture<'_>;
}

impl<S> Transport for S
where
    S: Service<Outgoing, Response = Answer, Error = Failure> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn send(&self, outgoing: Outgoing) -> SendFuture<'_> {
        // A clone for each attempt, and the one that was polled ready is the one that is called.
        let mut service = self.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(outgoing).await
        })
    }
}

impl fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &[u8], ending: Ending) -> Answer {
        Answer::new(StatusCode::OK).with_body(body.to_vec(), ending)
    }

    #[test]
    fn c115_a_snippet_ends_at_a_character() {
        let body = "a\u{e9}\u{1f600}".as_bytes();
        for (limit, expected) in
            [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (4, "aé"), (6, "aé"), (7, "aé😀"), (99, "aé😀")]
        {
            assert_eq!(answer(body, Ending::Complete).snippet(limit), expected, "{limit}");
        }
        assert_eq!(answer(&body[..5], Ending::Cut).snippet(99), "aé");
        assert_eq!(answer(&body[..5], Ending::Complete).snippet(99), "aé\u{fffd}", "it was sent like that");
        assert_eq!(answer(b"a\xff\x1b[2Jb\n", Ending::Cut).snippet(99), "a\u{fffd}\u{fffd}[2Jb\n");
        assert_eq!(answer(b"a\xff", Ending::Cut).snippet(99), "a\u{fffd}");
    }

    #[test]
    fn debug_output_holds_nothing_that_was_sent() {
        let headers = [(http::header::AUTHORIZATION, "S3CRET".parse().expect("a value"))].into_iter().collect();
        let outgoing = Outgoing::new("https://example.com/S3CRET", headers, "S3CRET");
        assert!(!format!("{outgoing:?}").contains("S3CRET"));
    }
}
