//! Senders that sign the URL, some the method too. The URL is the one that the provider was given: it comes from your
//! configuration.

use super::super::KeyBy;
use super::super::preset::Piece::{Body, Method, Time, Url, UrlDecoded};
use super::super::preset::Preset;
use crate::signature::form::twilio;
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Handshake};

pub(super) const ROWS: &[Preset] = &[
    Preset::new("twilio", "Twilio", "https://www.twilio.com/docs/usage/webhooks/webhooks-security")
        .signature(&["x-twilio-signature"])
        .algorithm(Algorithm::HmacSha1)
        .base64()
        .form(twilio::form)
        .known_by(
            KeyBy::SignedText,
            "Fields in another order, or with a letter moved from a name to its value, have the same signature: the digest \
             of the signed text is the same for all of these.",
        )
        .waits(15)
        .notes("Fields of a form are signed sorted and without separators; of any other body, the URL carries a digest in \
                `bodySHA256`. With `X-Twilio-Webhooks-Signature-Settings`, the algorithm may be HMAC-SHA256."),
    Preset::new("square", "Square", "https://developer.squareup.com/docs/webhooks/step3validate")
        .signature(&["x-square-hmacsha256-signature"])
        .base64()
        .signs(&[Url, Body])
        .id_in_body("event_id")
        .waits(10)
        .retries("up to 11 times within 24 hours"),
    Preset::new("trello", "Trello", "https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/")
        .signature(&["x-trello-webhook"])
        .algorithm(Algorithm::HmacSha1)
        .base64()
        .signs(&[Body, Url])
        .id_in_body("action.id")
        .handshakes(&[Handshake::Head])
        .retries("three times: after 30 s, 60 s and 120 s; 410 deletes the webhook"),
    HUBSPOT
        .renamed("hubspot-v3", "HubSpot", HUBSPOT_DOCS)
        .signature(&["x-hubspot-signature-v3"])
        .algorithm(Algorithm::HmacSha256)
        .base64()
        .timestamp("x-hubspot-request-timestamp", Unit::Millis)
        .signs(&[Method, UrlDecoded, Body, Time])
        .constants(&[])
        .waits(5)
        .retries("up to 10 times within 24 hours")
        .notes("Twelve escapes of the URL are decoded before it is signed. A request may hold several events, and their \
                `eventId`s are not promised to be unique: tell them apart in your handler."),
    HUBSPOT
        .renamed("hubspot-v2", "HubSpot", HUBSPOT_DOCS)
        .signs(&[Method, Url, Body])
        .constants(&[("x-hubspot-signature-version", Some("v2"), true), ("x-hubspot-signature-v3", None, false)])
        .waits(5)
        .retries("up to 10 times within 24 hours")
        .notes(LENGTH_EXTENSION),
    HUBSPOT
        .constants(&[("x-hubspot-signature-version", Some("v1"), true), ("x-hubspot-signature-v3", None, false)])
        .waits(5)
        .retries("up to 10 times within 24 hours")
        .notes(LENGTH_EXTENSION),
];

const HUBSPOT: Preset =
    Preset::new("hubspot-v1", "HubSpot", HUBSPOT_DOCS).signature(&["x-hubspot-signature"]).algorithm(Algorithm::Sha256);

const HUBSPOT_DOCS: &str = "https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests";

const LENGTH_EXTENSION: &str = "Whoever holds one request can sign another one that begins like it, since this is a digest \
                                and no HMAC. A request that also carries the signature of version 3 is refused: use \
                                `hubspot-v3` for it.";
