//! Senders with key pairs: the receiver's key is public, and cannot sign.

use super::super::preset::Piece::{Body, Time};
use super::super::preset::Preset;
use super::STANDARD;
use crate::secret::SecretFormat;
use crate::signature::form::plaid;
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Encoding, Handshake};

pub(super) const ROWS: &[Preset] = &[
    STANDARD
        .renamed(
            "standard-ed25519",
            "Standard Webhooks",
            "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
        )
        .algorithm(Algorithm::Ed25519)
        .list(b' ', "v1a,")
        .secret(SecretFormat::Ed25519)
        .promises_equal_bodies()
        .waits(15)
        .retries("the sender's choice; the specification's example goes on for three days")
        .notes("The receiver's key begins with `whpk_`, the sender's with `whsk_`."),
    Preset::new("discord", "Discord", "https://discord.com/developers/docs/interactions/overview")
        .signature(&["x-signature-ed25519"])
        .algorithm(Algorithm::Ed25519)
        .secret(SecretFormat::Ed25519Hex)
        .timestamp("x-signature-timestamp", Unit::Seconds)
        .signs(&[Time, Body])
        .id_in_body("id")
        .handshakes(&[Handshake::Ping])
        .waits(3)
        .retries("webhook events for up to 10 minutes; interactions never"),
    Preset::new("sendgrid", "SendGrid", "https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features")
        .signature(&["x-twilio-email-event-webhook-signature"])
        .algorithm(Algorithm::EcdsaP256)
        .base64()
        .secret(SecretFormat::P256)
        .timestamp("x-twilio-email-event-webhook-timestamp", Unit::Seconds)
        .signs(&[Time, Body])
        .id_in_body("[].sg_event_id")
        .retries("for up to 24 hours, with growing pauses")
        .notes("A request with one event has its id; one with several has none, and they are told apart in your handler. \
                The line break at the body's end is signed."),
    Preset::new("plaid", "Plaid", "https://plaid.com/docs/api/webhooks/webhook-verification/")
        .signature(&["plaid-verification"])
        .algorithm(Algorithm::EcdsaP256)
        .encoding(Encoding::Base64Url)
        .secret(SecretFormat::P256Jwk)
        .timed(Unit::Seconds)
        .form(plaid::form)
        .waits(10)
        .retries("for up to 24 hours, with growing pauses")
        .notes("The key is the JSON of Plaid's `/webhook_verification_key/get` for the token's `kid`; keep one secret for \
                each that is in use. Nothing is fetched here."),
];
