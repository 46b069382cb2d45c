//! Senders that sign a timestamp and the body: the timestamp bounds replays. Where the body has an id, that is signed with
//! it.

use super::super::preset::Piece::{Body, Lit, Time};
use super::super::preset::Preset;
use crate::signature::Handshake;
use crate::signature::window::Unit;

pub(super) const ROWS: &[Preset] = &[
    STRIPE,
    SLACK,
    Preset::new("zoom", "Zoom", "https://developers.zoom.us/docs/api/webhooks/")
        .signature(&["x-zm-signature"])
        .prefix("v0=")
        .timestamp("x-zm-request-timestamp", Unit::Seconds)
        .signs(&[Lit("v0:"), Time, Lit(":"), Body])
        .handshakes(&[Handshake::UrlValidation])
        .waits(3)
        .retries("three times: after 5 min, 20 min and 60 min"),
    Preset::new("paddle", "Paddle Billing", "https://developer.paddle.com/webhooks/signature-verification")
        .signature(&["paddle-signature"])
        .fields(b';', "ts=", "h1=", Unit::Seconds)
        .signs(&[Time, Lit(":"), Body])
        .id_in_body("event_id")
        .waits(5)
        .retries("60 times within 3 days")
        .notes("Paddle's own libraries allow 5 seconds, too few for clocks that differ; the window here is the usual one."),
    Preset::new("workos", "WorkOS", "https://workos.com/docs/events/data-syncing/webhooks")
        .signature(&["workos-signature"])
        .fields(b',', "t=", "v1=", Unit::Millis)
        .spaced()
        .window(180)
        .signs(&[Time, Lit("."), Body])
        .id_in_body("id")
        .retries("for up to 3 days, with growing pauses"),
    Preset::new("mux", "Mux", "https://www.mux.com/docs/core/verify-webhook-signatures")
        .signature(&["mux-signature"])
        .fields(b',', "t=", "v1=", Unit::Seconds)
        .signs(&[Time, Lit("."), Body])
        .id_in_body("id")
        .waits(5)
        .retries("for 24 hours, with growing pauses"),
    Preset::new("calendly", "Calendly", "https://developer.calendly.com/api-docs/ZG9jOjM2MzE2MDM4-webhook-signatures")
        .signature(&["calendly-webhook-signature"])
        .fields(b',', "t=", "v1=", Unit::Seconds)
        .window(180)
        .signs(&[Time, Lit("."), Body])
        .retries("for up to 24 hours, with growing pauses; 410 deletes the subscription"),
    Preset::new("elevenlabs", "ElevenLabs", "https://elevenlabs.io/docs/overview/administration/webhooks")
        .signature(&["elevenlabs-signature"])
        .fields(b',', "t=", "v0=", Unit::Seconds)
        .window(1_800)
        .signs(&[Time, Lit("."), Body])
        .retries("none; an endpoint that fails repeatedly is disabled"),
    Preset::new("recurly", "Recurly", "https://docs.recurly.com/recurly-subscriptions/docs/webhooks")
        .signature(&["recurly-signature"])
        .time_first(Unit::Millis)
        .signs(&[Time, Lit("."), Body])
        .id_in_body("id"),
    Preset::new("revolut", "Revolut", "https://developer.revolut.com/docs/guides/accept-payments/tutorials/work-with-webhooks/verify-the-payload-signature")
        .signature(&["revolut-signature"])
        .list(b',', "v1=")
        .timestamp("revolut-request-timestamp", Unit::Millis)
        .signs(&[Lit("v1."), Time, Lit("."), Body])
        .retries("three times, 10 minutes apart"),
    Preset::new("webflow", "Webflow", "https://developers.webflow.com/data/docs/working-with-webhooks")
        .signature(&["x-webflow-signature"])
        .timestamp("x-webflow-timestamp", Unit::Millis)
        .signs(&[Time, Lit(":"), Body])
        .retries("three times, 10 minutes apart"),
    Preset::new("zendesk", "Zendesk", "https://developer.zendesk.com/documentation/webhooks/verifying/")
        .signature(&["x-zendesk-webhook-signature"])
        .base64()
        .timestamp("x-zendesk-webhook-signature-timestamp", Unit::Rfc3339)
        .signs(&[Time, Body])
        .id("x-zendesk-webhook-invocation-id")
        .waits(12)
        .retries("three times after 409; after 429 and 503 where `Retry-After` is below 60 s; five times after a time-out")
        .notes("GET and DELETE have no body: the timestamp alone is signed. The invocation id is not signed."),
    Preset::new("box", "Box", "https://developer.box.com/guides/webhooks/v2/signatures-v2/")
        .signature(&["box-signature-primary", "box-signature-secondary"])
        .base64()
        .timestamp("box-delivery-timestamp", Unit::Rfc3339)
        .window(600)
        .signs(&[Body, Time])
        .id("box-delivery-id")
        .id_in_body("id")
        .constants(&[
            ("box-signature-version", Some("1"), true),
            ("box-signature-algorithm", Some("HmacSHA256"), true),
        ])
        .retries("up to 10 times within 2 hours")
        .notes("The id is the body's, which is signed and stays; `BOX-DELIVERY-ID` is neither, and is a label where the \
                body has none."),
    Preset::new("metronome", "Metronome", "https://docs.metronome.com/developer-resources/webhooks/")
        .signature(&["metronome-webhook-signature"])
        .timestamp("date", Unit::HttpDate)
        .signs(&[Time, Lit("\n"), Body])
        .id_in_body("id"),
];

pub(in super::super) const STRIPE: Preset = Preset::new(
    "stripe",
    "Stripe",
    "https://docs.stripe.com/webhooks/signature",
)
.signature(&["stripe-signature"])
.fields(b',', "t=", "v1=", Unit::Seconds)
.signs(&[Time, Lit("."), Body])
.id_in_body("id")
.retries("for up to 3 days, with growing pauses")
.notes(
    "A secret is the whole text `whsec_…`; it is not base64, other than with `standard`. Fields other than `v1`, \
            `v0` among them, are ignored.",
);

pub(in super::super) const SLACK: Preset =
    Preset::new("slack", "Slack", "https://docs.slack.dev/authentication/verifying-requests-from-slack/")
        .signature(&["x-slack-signature"])
        .prefix("v0=")
        .timestamp("x-slack-request-timestamp", Unit::Seconds)
        .signs(&[Lit("v0:"), Time, Lit(":"), Body])
        .id_in_body("event_id")
        .handshakes(&[Handshake::UrlVerification])
        .waits(3)
        .retries("three times: at once, after 1 min and after 5 min")
        .notes("Slash commands and interactions have no id.");
