//! The body of what our layers answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// Any error.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A response body: bytes in memory, or the handler's own stream, passed through.
pub struct ResponseBody(Inner);

enum Inner {
    Full(Option<Bytes>),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
    /// What was read of a stream before it turned out to be too long to keep, and the stream.
    Resumed(Option<Bytes>, UnsyncBoxBody<Bytes, BoxError>),
}

impl ResponseBody {
    /// These bytes.
    pub(super) fn full(bytes: Bytes) -> Self {
        Self(Inner::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// No bytes.
    pub(super) fn empty() -> Self {
        Self(Inner::Full(None))
    }

    /// A handler's body. One that is ours already is not wrapped again.
    pub(super) fn stream<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        if let Some(ours) = (&mut body as &mut dyn std::any::Any).downcast_mut::<Option<Self>>()
            && let Some(ours) = ours.take()
        {
            return ours;
        }
        body.map_or_else(Self::empty, |body| Self(Inner::Stream(body.map_err(Into::into).boxed_unsync())))
    }

    /// A handler's body of which `read` has been taken off the front.
    pub(super) fn resumed<B>(read: Bytes, rest: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Inner::Resumed(Some(read), rest.map_err(Into::into).boxed_unsync()))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.get_mut().0 {
            Inner::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Resumed(read, rest) => match read.take() {
                Some(read) => Poll::Ready(Some(Ok(Frame::data(read)))),
                None => Poll::Ready(ready!(Pin::new(rest).poll_frame(cx))),
            },
            Inner::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Full(bytes) => bytes.is_none(),
            Inner::Resumed(read, rest) => read.is_none() && rest.is_end_stream(),
            Inner::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let in_memory = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match &self.0 {
            Inner::Full(bytes) => SizeHint::with_exact(in_memory(bytes)),
            Inner::Resumed(read, rest) => {
                let (read, rest) = (in_memory(read), rest.size_hint());
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(read));
                }
                hint
            }
            Inner::Stream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResponseBody").field(&self.size_hint()).finish()
    }
}
