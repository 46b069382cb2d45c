//! Senders that sign the body alone. No timestamp is signed: what stops a replay is the table of seen events, for as long
//! as it remembers. An id in a header is not signed: whoever holds one request can send it again under any id.

use super::super::KeyBy;
use super::super::preset::Preset;
use crate::secret::SecretFormat;
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Handshake};

pub(super) const ROWS: &[Preset] = &[
    GITHUB,
    GITHUB_SHA1,
    SHOPIFY,
    Preset::new("bitbucket", "Bitbucket", "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/")
        .signature(&["x-hub-signature"])
        .prefix("sha256=")
        .id("x-request-uuid")
        .waits(10)
        .retries("twice, after 5xx and time-outs only")
        .prefers_5xx()
        .notes("The header is the one in which others send SHA-1; here it is SHA-256."),
    Preset::new("jira", "Jira", "https://developer.atlassian.com/cloud/jira/platform/webhooks/")
        .signature(&["x-hub-signature"])
        .prefix("sha256=")
        .id("x-atlassian-webhook-identifier"),
    Preset::new("meta", "Meta, WhatsApp, Instagram", "https://developers.facebook.com/docs/graph-api/webhooks/getting-started")
        .signature(&["x-hub-signature-256"])
        .prefix("sha256=")
        .handshakes(&[Handshake::HubChallenge])
        .retries("at once, then ever less often, for up to 36 hours")
        .notes("Signed is the body with its characters outside ASCII escaped, as it is sent."),
    Preset::new("intercom", "Intercom", "https://developers.intercom.com/docs/webhooks/webhook-notifications")
        .signature(&["x-hub-signature"])
        .prefix("sha1=")
        .algorithm(Algorithm::HmacSha1)
        .id_in_body("id")
        .handshakes(&[Handshake::Head])
        .waits(5)
        .retries("once, after 1 minute; 410 disables the endpoint"),
    Preset::new("x", "X (Twitter)", "https://docs.x.com/x-api/webhooks/introduction")
        .signature(&["x-twitter-webhooks-signature"])
        .prefix("sha256=")
        .base64()
        .handshakes(&[Handshake::ChallengeResponse])
        .waits(3)
        .notes("The answer to a challenge is a right signature of it: answer none that could be a body."),
    Preset::new("typeform", "Typeform", "https://www.typeform.com/developers/webhooks/secure-your-webhooks/")
        .signature(&["typeform-signature"])
        .prefix("sha256=")
        .base64()
        .id_in_body("event_id")
        .waits(30)
        .retries("every 2 to 3 minutes for 10 hours after 408, 423, 429 and 503; rarely after others; 404 and 410 disable the endpoint")
        .prefers_5xx(),
    Preset::new("woocommerce", "WooCommerce", "https://woocommerce.com/document/webhooks/")
        .signature(&["x-wc-webhook-signature"])
        .base64()
        .id("x-wc-webhook-delivery-id")
        .handshakes(&[Handshake::UnsignedPing])
        .retries("none; after 5 failures in a row the webhook is disabled")
        .notes("The delivery id changes with each attempt, and two events in one second share it."),
    Preset::new("line", "LINE", "https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature/")
        .signature(&["x-line-signature"])
        .base64()
        .known_by(
            KeyBy::ArrivalIfEmpty("events"),
            "The requests with which LINE tries an endpoint have no events and are all equal.",
        )
        .handshakes(&[Handshake::EmptyEvents])
        .waits(2)
        .retries("if you switch redelivery on")
        .notes("A request may hold several events, each with a `webhookEventId`: look at these in your handler."),
    Preset::new("xero", "Xero", "https://developer.xero.com/documentation/guides/webhooks/overview/")
        .signature(&["x-xero-signature"])
        .base64()
        .handshakes(&[Handshake::EmptyEvents])
        .waits(5)
        .retries("for up to 24 hours, with growing pauses")
        .notes("A request may hold several events: tell these apart in your handler."),
    Preset::new("quickbooks", "QuickBooks", "https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks")
        .signature(&["intuit-signature"])
        .base64()
        .waits(3)
        .notes("A request may hold several events, each with an `id`: look at these in your handler."),
    Preset::new("linear", "Linear", "https://linear.app/developers/webhooks")
        .signature(&["linear-signature"])
        .timestamp_in_body("webhookTimestamp", Unit::Millis)
        .window(60)
        .id("linear-delivery")
        .waits(5)
        .retries("three times: after 1 min, 1 h and 6 h")
        .notes("The timestamp is the body's `webhookTimestamp`, which is signed; the header `Linear-Timestamp` is not, and \
                is not looked at."),
    Preset::new("dropbox", "Dropbox", "https://www.dropbox.com/developers/reference/webhooks")
        .signature(&["x-dropbox-signature"])
        .known_by(
            KeyBy::Arrival,
            "A body names the accounts that have changed and nothing else: the next change of the same accounts is an \
             equal body. Each request is an event of its own; reading the changes from your cursor makes repeats harmless.",
        )
        .handshakes(&[Handshake::Challenge])
        .waits(10)
        .retries("with growing pauses, for about 10 minutes"),
    Preset::new("lemonsqueezy", "Lemon Squeezy", "https://docs.lemonsqueezy.com/help/webhooks/signing-requests")
        .signature(&["x-signature"])
        .retries("three times: after 5 s, 25 s and 125 s"),
    Preset::new("razorpay", "Razorpay", "https://razorpay.com/docs/webhooks/validate-test/")
        .signature(&["x-razorpay-signature"])
        .id("x-razorpay-event-id")
        .waits(5)
        .retries("for up to 24 hours, with growing pauses")
        .notes("Razorpay advises to tell events apart by `x-razorpay-event-id`, which is not signed."),
    Preset::new("coinbase", "Coinbase Commerce", "https://docs.cdp.coinbase.com/commerce/webhooks")
        .signature(&["x-cc-webhook-signature"])
        .id_in_body("event.id")
        .retries("for up to 3 days, with growing pauses"),
    Preset::new("sentry", "Sentry", "https://docs.sentry.io/organization/integrations/integration-platform/webhooks/")
        .signature(&["sentry-hook-signature"])
        .id("request-id")
        .waits(1)
        .retries("none")
        .notes("`Sentry-Hook-Timestamp` and `Sentry-Hook-Resource` are not signed."),
    Preset::new("vercel", "Vercel", "https://vercel.com/docs/webhooks/webhooks-api")
        .signature(&["x-vercel-signature"])
        .algorithm(Algorithm::HmacSha1)
        .id_in_body("id")
        .waits(30)
        .retries("for up to 24 hours"),
    Preset::new("asana", "Asana", "https://developers.asana.com/docs/webhooks-guide")
        .signature(&["x-hook-signature"])
        .known_by(KeyBy::ArrivalIfEmpty("events"), "Heartbeats have no events and are all equal.")
        .handshakes(&[Handshake::HookSecret, Handshake::EmptyEvents])
        .waits(10)
        .retries("for up to 24 hours; then the webhook is deleted"),
    Preset::new("pagerduty", "PagerDuty", "https://developer.pagerduty.com/docs/verifying-webhook-signatures")
        .signature(&["x-pagerduty-signature"])
        .list(b',', "v1=")
        .id_in_body("event.id")
        .handshakes(&[Handshake::PingEvent])
        .waits(16),
    Preset::new("docusign", "DocuSign Connect", "https://developers.docusign.com/platform/webhooks/connect/hmac/")
        .signature(&DOCUSIGN)
        .base64()
        .constants(&[("x-authorization-digest", Some("HMACSHA256"), false)])
        .waits(100)
        .retries("for up to 15 days, with growing pauses")
        .notes("There is a header for each of the account's keys. A key is used as the text that it is, though it looks \
                like base64."),
    Preset::new("hookdeck", "Hookdeck", "https://hookdeck.com/docs/authentication")
        .signature(&["x-hookdeck-signature", "x-hookdeck-signature-2"])
        .base64()
        .id("x-hookdeck-eventid")
        .waits(60)
        .retries("as you set them up"),
    Preset::new("outpost", "Outpost", "https://outpost.hookdeck.com/docs/destinations/webhook")
        .signature(&["x-outpost-signature"])
        .list(b',', "v0=")
        .id("x-outpost-event-id")
        .notes("As it is by default since version 0.12; prefix and template can be configured, and then it is `hmac`."),
    Preset::new("adyen-payload", "Adyen (all but payments)", "https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures")
        .signature(&["hmacsignature"])
        .base64()
        .secret(SecretFormat::Hex)
        .constants(&[("protocol", Some("HmacSHA256"), false)])
        .waits(10)
        .retries("three times at once, then ever less often for up to 30 days"),
];

pub(in super::super) const GITHUB: Preset =
    Preset::new("github", "GitHub", "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries")
        .signature(&["x-hub-signature-256"])
        .prefix("sha256=")
        .id("x-github-delivery")
        .handshakes(&[Handshake::PingEvent])
        .waits(10)
        .retries("none; redelivery is by hand or by its API")
        .notes(
            "`X-GitHub-Event` is not signed either: tell events apart by their bodies, or give each type an endpoint.",
        );

pub(in super::super) const GITHUB_SHA1: Preset = GITHUB
    .renamed(
        "github-sha1",
        "GitHub",
        "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
    )
    .algorithm(Algorithm::HmacSha1)
    .signature(&["x-hub-signature"])
    .prefix("sha1=")
    .handshakes(&[Handshake::PingEvent])
    .waits(10)
    .retries("none; redelivery is by hand or by its API")
    .notes("For GitHub Enterprise servers that send no other. `github` never falls back to it.");

pub(in super::super) const SHOPIFY: Preset =
    Preset::new("shopify", "Shopify", "https://shopify.dev/docs/apps/build/webhooks/subscribe/https")
        .signature(&["x-shopify-hmac-sha256"])
        .base64()
        .id("x-shopify-webhook-id")
        .waits(5)
        .retries("8 times within 4 hours; then the subscription is deleted")
        .notes("Topic, shop and `X-Shopify-Triggered-At` are not signed.");

const DOCUSIGN: [&str; 16] = [
    "x-docusign-signature-1",
    "x-docusign-signature-2",
    "x-docusign-signature-3",
    "x-docusign-signature-4",
    "x-docusign-signature-5",
    "x-docusign-signature-6",
    "x-docusign-signature-7",
    "x-docusign-signature-8",
    "x-docusign-signature-9",
    "x-docusign-signature-10",
    "x-docusign-signature-11",
    "x-docusign-signature-12",
    "x-docusign-signature-13",
    "x-docusign-signature-14",
    "x-docusign-signature-15",
    "x-docusign-signature-16",
];
