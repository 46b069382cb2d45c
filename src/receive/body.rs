//! First step of the walk: the body, read once, within bounds, with the signature check fed on the way.
//!
//! Nothing here decodes or trims. A body that arrives in one piece is passed on as that piece; several are joined in one
//! buffer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::response::BoxError;

/// How much of a body, and for how long, this side is willing to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bytes: usize,
    pub(super) time: Duration,
    /// Of all bodies together that are not checked yet: anybody can send those.
    pub(super) unverified: usize,
}

/// A body that is whole, and its share of the room for bodies that are not checked yet.
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) share: Option<OwnedSemaphorePermit>,
}

/// Why there is no whole body.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The connection ended, or the stream was reset, before the body was complete.
    Incomplete(BoxError),
    /// Others have filled the room for bodies that are not checked yet.
    NoRoom,
    /// Bytes were announced and none came: a layer in front of ours has read them.
    Taken(u64),
    /// More than the limit was announced or came.
    TooLarge,
    /// It was not complete in time.
    TooSlow,
}

/// Reads the whole body and gives every piece to `sink`: to the check.
///
/// A `Content-Length` over the limit is refused before a byte is read.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    mut body: B,
    mut sink: impl FnMut(&[u8]),
    limits: Limits,
    room: &Arc<Semaphore>,
) -> Result<Whole, BodyError>
where
    B: Body + Unpin,
    B::Data: Into<Bytes>,
    B::Error: Into<BoxError>,
{
    let announced = content_length(headers);
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limits.bytes)) {
        drain_unread(headers, body).await;
        return Err(BodyError::TooLarge);
    }

    match timeout(limits.time, collect(&mut body, &mut sink, limits.bytes, room)).await {
        Ok(Ok(whole)) => match announced {
            Some(length) if length > 0 && whole.bytes.is_empty() => Err(BodyError::Taken(length)),
            Some(_) | None => Ok(whole),
        },
        Ok(Err(error @ (BodyError::NoRoom | BodyError::TooLarge))) => {
            drain(body).await;
            Err(error)
        }
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => Err(BodyError::TooSlow),
    }
}

async fn collect<B>(
    body: &mut B,
    sink: &mut impl FnMut(&[u8]),
    limit: usize,
    room: &Arc<Semaphore>,
) -> Result<Whole, BodyError>
where
    B: Body + Unpin,
    B::Data: Into<Bytes>,
    B::Error: Into<BoxError>,
{
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut share: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        // Trailers are not part of what was signed.
        let Ok(data) = frame.map_err(|error| broken(error.into()))?.into_data() else { continue };
        let data: Bytes = data.into();
        if first.len() + joined.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        let size = u32::try_from(data.len()).map_err(|_| BodyError::TooLarge)?;
        let more = Arc::clone(room).try_acquire_many_owned(size).map_err(|_| BodyError::NoRoom)?;
        match &mut share {
            Some(share) => share.merge(more),
            None => share = Some(more),
        }
        sink(&data);
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
                first = Bytes::new();
            }
            joined.extend_from_slice(&data);
        }
    }
    let bytes = if joined.is_empty() { first } else { joined.freeze() };
    Ok(Whole { bytes, share })
}

/// What an error of the body means. A layer in front of ours may have a limit of its own, and says so in this way.
fn broken(error: BoxError) -> BodyError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return BodyError::TooLarge;
        }
        cause = error.source();
    }
    BodyError::Incomplete(error)
}

/// Drains the body of a request that is refused on its head alone.
///
/// A client that asked with `Expect: 100-continue` has not begun to send. Reading would ask it to.
pub(super) async fn drain_unread<B: Body>(headers: &HeaderMap, body: B) {
    if !headers.contains_key(header::EXPECT) {
        drain(body).await;
    }
}

/// Reads and drops what is left of a refused body, within bounds, so that a client that sends first and reads later
/// gets to read the answer instead of a reset connection.
async fn drain<B: Body>(body: B) {
    let mut left = DRAIN_BYTES;
    let mut body = pin!(body);
    let drained = timeout(DRAIN_TIME, async {
        while let Some(Ok(frame)) = body.frame().await {
            use bytes::Buf as _;
            let length = frame.data_ref().map_or(0, |data| data.remaining());
            match left.checked_sub(length) {
                Some(less) => left = less,
                None => return,
            }
        }
    });
    // Too slow or too much: the answer goes out regardless, and the server closes the connection.
    let _ = drained.await;
}

/// The announced length, where it is one number.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Most of the bytes that a refused request may still send.
const DRAIN_BYTES: usize = 32 * 1024 * 1024;
/// Longest time that a refused request may still send.
const DRAIN_TIME: Duration = Duration::from_secs(5);
