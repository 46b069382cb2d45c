//! Adyen's notifications of payments: a signature in the body, over eight of its fields. The others are not signed.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use serde::Deserialize;

use super::{Claim, Form, Hand, Opened};
use crate::event::EventId;
use crate::signature::header::{Head, Signatures};
use crate::signature::verified::IdOrigin;
use crate::signature::{Algorithm, Encoding, Message, SignError, VerifyError};

pub(in crate::signature) fn form() -> Arc<dyn Form> {
    Arc::new(Adyen)
}

#[derive(Debug)]
struct Adyen;

impl Form for Adyen {
    fn open(&self, _head: &Head<'_>) -> Result<Opened, VerifyError> {
        Ok(Box::new(|body| {
            let notification: Notification<'_> = serde_json::from_slice(body)
                .map_err(|_| VerifyError::MalformedBody("it is no notification with a signature"))?;
            // A second one would be one whose signature nobody checked.
            let [item] = notification.items.as_slice() else {
                return Err(VerifyError::MalformedBody("it holds more or less than one notification"));
            };
            let item = &item.item;
            let tag = Encoding::Base64.decode(item.additional.signature.as_bytes(), Algorithm::HmacSha256);
            let tag = tag.ok_or(VerifyError::MalformedBody("`hmacSignature` is no well-formed signature"))?;
            Ok(Claim {
                id: Some((EventId::new(&item.psp_reference), IdOrigin::SignedBody)),
                ..Claim::new(item.signed()?.into_bytes(), Signatures::from_iter([tag]), Algorithm::HmacSha256)
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
        "eight fields of the body, with `:` between them".to_owned()
    }
}

#[derive(Deserialize)]
struct Notification<'b> {
    #[serde(rename = "notificationItems", borrow)]
    items: Vec<Wrapped<'b>>,
}

#[derive(Deserialize)]
struct Wrapped<'b> {
    #[serde(rename = "NotificationRequestItem", borrow)]
    item: Item<'b>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'b> {
    #[serde(borrow)]
    psp_reference: Cow<'b, str>,
    #[serde(borrow, default)]
    original_reference: Option<Cow<'b, str>>,
    #[serde(borrow)]
    merchant_account_code: Cow<'b, str>,
    #[serde(borrow, default)]
    merchant_reference: Option<Cow<'b, str>>,
    #[serde(borrow)]
    amount: Amount<'b>,
    #[serde(borrow)]
    event_code: Cow<'b, str>,
    success: Success,
    #[serde(rename = "additionalData", borrow)]
    additional: Additional<'b>,
}

#[derive(Deserialize)]
struct Amount<'b> {
    value: i64,
    #[serde(borrow)]
    currency: Cow<'b, str>,
}

#[derive(Deserialize)]
struct Additional<'b> {
    #[serde(rename = "hmacSignature", borrow)]
    signature: Cow<'b, str>,
}

/// Written as a text by Adyen, and as what it is by others.
#[derive(Deserialize)]
#[serde(untagged)]
enum Success {
    Flag(bool),
    Text(String),
}

impl Item<'_> {
    /// The signed text.
    ///
    /// One of its fields is the merchant's own and may hold a colon. Since none of the others may, the text can be taken
    /// apart in one way only.
    fn signed(&self) -> Result<String, VerifyError> {
        let success = match &self.success {
            Success::Flag(true) => "true",
            Success::Flag(false) => "false",
            Success::Text(text) => text,
        };
        let original = self.original_reference.as_deref().unwrap_or_default();
        let (account, currency) = (&*self.merchant_account_code, &*self.amount.currency);
        let bounded = [&*self.psp_reference, original, account, currency, &*self.event_code, success];
        if bounded.iter().any(|field| field.contains(':')) {
            return Err(VerifyError::MalformedBody("a field holds the separator of the signed text"));
        }
        let reference = self.merchant_reference.as_deref().unwrap_or_default();
        let (psp, value, event) = (&self.psp_reference, self.amount.value, &self.event_code);
        Ok(format!("{psp}:{original}:{account}:{reference}:{value}:{currency}:{event}:{success}"))
    }
}
