//! The request of an attempt: what is signed, and what stands beside the signature.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method};
use tokio::time::Instant;
use tracing::warn;

use super::attempt::{Desk, Ended, SETTLE_TIME};
use super::key_source::NoSigner;
use super::{Outgoing, Retry, Target, Verdict};
use crate::clock::{Clock, SystemClock};
use crate::signature::{self, SignError};
use crate::store::{AttemptReport, Endpoint, EndpointHealth, Message};
use crate::{Digest, Name};

impl Desk {
    /// The request: the endpoint's own headers first, then ours, which replace what has the same name. Each attempt has a
    /// timestamp and signatures of its own, and the same id and payload.
    pub(super) async fn outgoing(
        &self,
        endpoint: &Endpoint,
        message: &Message,
        attempt: u32,
    ) -> Result<Outgoing, Unsendable> {
        let signer = self.signers.signer(endpoint).await?;
        // The receiver sees what is dialled, so that is what is signed. What is no `http` URL is its transport's own affair.
        let target = endpoint.url.parse::<Target>().ok();
        let url = target.as_ref().map_or(&*endpoint.url, Target::as_str);
        let to_sign = signature::Message::new(SystemClock.now(), &message.payload)
            .with_id(message.id.as_str())
            .with_event_type(message.event_type.as_str())
            .with_content_type(&message.content_type)
            .with_target(&Method::POST, url);
        let signed = signer.sign(&to_sign)?;

        let mut headers = endpoint.headers.clone();
        // The one header of ours that an endpoint may replace: some receivers let in only who says who it is.
        headers.entry(USER_AGENT).or_insert_with(|| self.settings.user_agent.clone());
        let digest = STANDARD.encode(Digest::of(&message.payload).as_bytes());
        for (name, text) in [
            (CONTENT_TYPE, Some(&*message.content_type)),
            (CONTENT_DIGEST, Some(&*format!("sha-256=:{digest}:"))),
            (WEBHOOK_TYPE, Some(message.event_type.as_str())),
            (WEBHOOK_ATTEMPT, Some(&*attempt.to_string())),
            (WEBHOOK_SCHEMA_VERSION, message.schema_version.map(|version| version.to_string()).as_deref()),
            (TRACEPARENT, message.traceparent.as_deref()),
            (CORRELATION_ID, message.correlation_id.as_ref().map(Name::as_str)),
            (CAUSATION_ID, message.causation_id.as_ref().map(Name::as_str)),
        ] {
            headers.remove(&name);
            if let Some(text) = text {
                let value = HeaderValue::from_str(text).map_err(|_| Unsendable::Header(name.clone()))?;
                headers.insert(name, value);
            }
        }
        for name in signed.keys() {
            // No store knows schemes, so none could refuse it.
            if endpoint.headers.contains_key(name) {
                warn!(endpoint = %endpoint.name, %name, "a header of the endpoint's is one of its scheme's, which replaces it");
            }
            headers.remove(name);
        }
        headers.extend(signed);

        let asked = endpoint.settings.timeout_ms.map_or(self.settings.timeout, Duration::from_millis);
        // Longer would outlast the lease.
        let timeout = asked.clamp(Duration::from_millis(1), self.settings.lease.saturating_sub(SETTLE_TIME));
        Ok(Outgoing::new(url, headers, message.payload.clone())
            .with_timeouts(timeout, timeout)
            .with_answer_limit(self.settings.answer_limit))
    }
}

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const WEBHOOK_ATTEMPT: HeaderName = HeaderName::from_static("webhook-attempt");
const WEBHOOK_SCHEMA_VERSION: HeaderName = HeaderName::from_static("webhook-schema-version");
const WEBHOOK_TYPE: HeaderName = HeaderName::from_static("webhook-type");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CORRELATION_ID: HeaderName = HeaderName::from_static("correlation-id");
const CAUSATION_ID: HeaderName = HeaderName::from_static("causation-id");

/// Why a message cannot even be sent: something on this side.
pub(super) enum Unsendable {
    Header(HeaderName),
    Sign(SignError),
    Signer(NoSigner),
}

impl From<NoSigner> for Unsendable {
    fn from(error: NoSigner) -> Self {
        Self::Signer(error)
    }
}

impl From<SignError> for Unsendable {
    fn from(error: SignError) -> Self {
        Self::Sign(error)
    }
}

impl Unsendable {
    pub(super) fn ended(self, began: Instant) -> Ended {
        let (kind, error, verdict) = match self {
            Self::Header(name) => ("header", format!("its header `{name}` cannot be written"), Verdict::Permanent),
            Self::Sign(error) => ("sign", format!("it cannot be signed: {error}"), Verdict::Permanent),
            Self::Signer(error @ NoSigner::Scheme(_)) => ("scheme", error.to_string(), Verdict::Permanent),
            // Secrets come and go with deployments.
            Self::Signer(error @ NoSigner::Keys(_)) => ("keys", error.to_string(), Verdict::Retry(Retry::default())),
        };
        let report = AttemptReport {
            took: began.elapsed(),
            error: Some(error),
            kind: Some(kind.to_owned()),
            ..AttemptReport::default()
        };
        let unknown = EndpointHealth::Unknown;
        Ended { verdict, report, health: unknown, lasting_health: unknown, unsendable: true }
    }
}
