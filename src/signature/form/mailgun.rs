//! Mailgun: a signature in the body, over a timestamp and a token that stand beside it. What has happened is not signed.

use std::sync::Arc;

use http::HeaderMap;

use super::{Claim, Form, Hand, Opened};
use crate::event::EventId;
use crate::signature::body_id::find;
use crate::signature::header::{Head, Signatures};
use crate::signature::verified::IdOrigin;
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Encoding, Message, SignError, VerifyError};

pub(in crate::signature) fn form() -> Arc<dyn Form> {
    Arc::new(Mailgun)
}

#[derive(Debug)]
struct Mailgun;

impl Form for Mailgun {
    fn open(&self, _head: &Head<'_>) -> Result<Opened, VerifyError> {
        Ok(Box::new(|body| {
            let field = |path, fault| find(body, path).ok_or(VerifyError::MalformedBody(fault));
            let timestamp = field("signature.timestamp", "it has no `signature.timestamp`")?;
            let token = field("signature.token", "it has no `signature.token`")?;
            let signature = field("signature.signature", "it has no `signature.signature`")?;

            let sent = Unit::Seconds.parse(timestamp.as_bytes());
            let sent = sent.ok_or(VerifyError::MalformedBody("`signature.timestamp` is no whole number"))?;
            let tag = Encoding::Hex.decode(signature.as_bytes(), Algorithm::HmacSha256);
            let tag = tag.ok_or(VerifyError::MalformedBody("`signature.signature` is no well-formed signature"))?;
            let text = format!("{timestamp}{token}").into_bytes();
            Ok(Claim {
                sent: Some(sent),
                id: Some((EventId::new(&token), IdOrigin::SignedBody)),
                ..Claim::new(text, Signatures::from_iter([tag]), Algorithm::HmacSha256)
            })
        }))
    }

    fn sign(&self, _message: &Message<'_>, _hand: &Hand<'_>) -> Result<HeaderMap, SignError> {
        Err(SignError::InBody)
    }

    fn id_origin(&self) -> IdOrigin {
        IdOrigin::SignedBody
    }

    fn is_in_body(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "{signature.timestamp of the body}{signature.token of the body}".to_owned()
    }
}
