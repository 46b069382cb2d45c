//! Message signatures among the other ways to sign: keys, comparison, id and window are those of every scheme.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use super::MessageSignature;
use super::component::Component;
use super::input::SIGNATURE;
use crate::event::EventId;
use crate::signature::form::{self, Form, Hand, Opened};
use crate::signature::header::{Signatures, malformed};
use crate::signature::mac::Tag;
use crate::signature::verified::IdOrigin;
use crate::signature::{Head, Message, SignError, VerifyError};

/// With the policy that is used unless said otherwise.
pub(in crate::signature) fn form() -> Arc<dyn Form> {
    Arc::new(MessageSignature::default())
}

impl Form for MessageSignature {
    fn open(&self, head: &Head<'_>) -> Result<Opened, VerifyError> {
        let claim = self.read(head)?;
        let algorithm = self.algorithm;
        if claim.signature.len() != algorithm.tag_bytes() {
            return Err(malformed(&SIGNATURE, "it has another length than those of the algorithm"));
        }
        let signatures = Signatures::from_iter([Tag::new(&claim.signature)]);
        Ok(Box::new(move |body| {
            Ok(form::Claim {
                binds_body: claim.covers(body),
                key_id: claim.key_id,
                sent: Some(claim.created),
                until: claim.expires,
                id: claim.id.map(|id| (EventId::new(&id), IdOrigin::SignedHeader)),
                ..form::Claim::new(claim.base, signatures, algorithm)
            })
        }))
    }

    fn sign(&self, message: &Message<'_>, hand: &Hand<'_>) -> Result<HeaderMap, SignError> {
        let unsigned = self.prepare(message)?;
        let tag = hand.sign(self.algorithm, &unsigned.base)?;
        unsigned.signed(&tag.to_bytes(self.algorithm))
    }

    fn omits_body(&self) -> bool {
        !self.covers_body()
    }

    fn id_origin(&self) -> IdOrigin {
        if self.has_id() { IdOrigin::SignedHeader } else { IdOrigin::None }
    }

    fn other_headers(&self) -> &[HeaderName] {
        &self.headers
    }

    /// Whether what has to be covered is taken from the URL.
    fn signs_url(&self) -> bool {
        self.required.iter().any(Component::is_of_url)
    }

    fn describe(&self) -> String {
        let covered: Vec<_> = self.required.iter().map(Component::name).collect();
        format!("the signature base of {}", covered.join(", "))
    }
}
