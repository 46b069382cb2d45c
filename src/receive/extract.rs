//! What axum handlers can ask for: [`Delivery`], [`Event`] and [`Reservation`].

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, IntoResponseParts, ResponseParts};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{Delivery, Outcome, PayloadError, Rejection, Reservation};
use crate::envelope::{Contract, ContractError, Envelope};

/// A delivery with its body read as JSON of the type `T`.
///
/// A signed body that does not read as `T` is no reason to refuse the event: new event types appear, and their sender
/// repeats what is not answered with a 2xx. So `payload` is a result, and the handler says what happens. Fields that
/// `T` does not have are passed over.
///
/// ```
/// use axum::http::StatusCode;
/// use countersign::receive::{Event, PayloadError};
///
/// #[derive(serde::Deserialize)]
/// #[serde(tag = "type")]
/// enum Known {
///     #[serde(rename = "order.paid")]
///     OrderPaid { amount: u64 },
///     #[serde(other)]
///     NotHandled,
/// }
///
/// async fn handler(event: Event<Known>) -> Result<StatusCode, PayloadError> {
///     // A known type of a shape that we cannot read is a dead letter, and not lost.
///     match event.payload? {
///         Known::OrderPaid { amount } => Ok(StatusCode::CREATED),
///         Known::NotHandled => Ok(StatusCode::NO_CONTENT),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Event<T> {
    /// The delivery, with the body as it came.
    pub delivery: Delivery,
    /// The body as a `T`, or why it is none.
    pub payload: Result<T, PayloadError>,
}

/// A handler asked for something that only a layer can put there, and the layer is missing. 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("`{asked}` needs a `{layer}` around this handler")]
pub struct MissingLayer {
    asked: &'static str,
    layer: &'static str,
}

impl IntoResponse for MissingLayer {
    fn into_response(self) -> axum::response::Response {
        tracing::error!("{self}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Delivery {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
        parts.extensions.get().cloned().ok_or(MissingLayer { asked: "Delivery", layer: "VerifyLayer" })
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Event<T> {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, MissingLayer> {
        let delivery = Delivery::from_request_parts(parts, state).await?;
        let payload = delivery.json();
        Ok(Self { delivery, payload })
    }
}

impl<S: Sync> FromRequestParts<S> for Reservation {
    type Rejection = MissingLayer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLayer> {
        parts.extensions.get().cloned().ok_or(MissingLayer { asked: "Reservation", layer: "DedupLayer" })
    }
}

/// Why a handler does not get its envelope.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoEnvelope {
    /// Sender and receiver do not agree: a dead letter with its reason, or tried again ([`ContractError::is_transient`]).
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// There is no layer that checks deliveries.
    #[error(transparent)]
    MissingLayer(#[from] MissingLayer),
}

impl IntoResponse for NoEnvelope {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::Contract(error) => error.into_response(),
            Self::MissingLayer(missing) => missing.into_response(),
        }
    }
}

/// As its [`Outcome`] is: 422 or 503.
impl IntoResponse for ContractError {
    fn into_response(self) -> axum::response::Response {
        Outcome::from(self).into_response()
    }
}

/// The body as an envelope, with its payload as text.
impl<S: Sync> FromRequestParts<S> for Envelope {
    type Rejection = NoEnvelope;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, NoEnvelope> {
        Ok(Delivery::from_request_parts(parts, state).await?.envelope()?)
    }
}

/// The body as an envelope of this type. Any other is answered for the handler.
impl<T: Contract, S: Sync> FromRequestParts<S> for Envelope<T> {
    type Rejection = NoEnvelope;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, NoEnvelope> {
        Ok(Delivery::from_request_parts(parts, state).await?.envelope()?.read()?)
    }
}

impl IntoResponseParts for Outcome {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Self::Error> {
        response.extensions_mut().insert(self);
        Ok(response)
    }
}

/// By itself: 204, 422 or 503, without a body.
impl IntoResponse for Outcome {
    fn into_response(self) -> axum::response::Response {
        let status = match self {
            Self::Done => StatusCode::NO_CONTENT,
            Self::Permanent(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Transient(_) | Self::Unclear(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A payload that cannot be read will not become readable: 422, and the event is a dead letter. So a handler may write
/// `event.payload?`.
impl IntoResponse for PayloadError {
    fn into_response(self) -> axum::response::Response {
        Outcome::permanent(self.to_string()).into_response()
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> axum::response::Response {
        Self::into_response(self).map(axum::body::Body::new)
    }
}
