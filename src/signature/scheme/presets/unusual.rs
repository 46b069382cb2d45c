//! Senders that sign a few fields of the body, or nothing.

use super::super::KeyBy;
use super::super::preset::Preset;
use crate::secret::SecretFormat;
use crate::signature::form::{adyen, mailgun};
use crate::signature::window::Unit;
use crate::signature::{Algorithm, Encoding, Handshake};

pub(super) const ROWS: &[Preset] = &[
    Preset::new("mailgun", "Mailgun", "https://documentation.mailgun.com/docs/mailgun/user-manual/events/webhooks")
        .form(mailgun::form)
        .timed(Unit::Seconds)
        .retries("7 times within 8 hours; never after 406")
        .notes(
            "Timestamp and token are signed; what has happened is not. Whoever holds one request can send it once more \
                with another content before yours arrives: the connection has to be trusted.",
        ),
    Preset::new(
        "adyen-notification",
        "Adyen (payments)",
        "https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures",
    )
    .base64()
    .secret(SecretFormat::Hex)
    .form(adyen::form)
    .known_by(
        KeyBy::SignedText,
        "One `pspReference` stands for several events of a payment, with different `eventCode`s: the digest of all \
             signed fields tells them apart.",
    )
    .waits(10)
    .retries("three times at once, then ever less often for up to 7 days")
    .notes(
        "Eight fields are signed: reference, original reference, account, merchant reference, value, currency, \
                event code and success. All others are not.",
    ),
    Preset::new("gitlab-token", "GitLab", "https://docs.gitlab.com/user/project/integrations/webhooks/")
        .signature(&["x-gitlab-token"])
        .algorithm(Algorithm::Token)
        .encoding(Encoding::Plain)
        .id("x-gitlab-event-uuid")
        .waits(10)
        .retries("none; an endpoint that fails repeatedly is disabled, at first for a while")
        .notes("Whoever sees one request can send any other. Prefer `gitlab-signing-token`."),
    Preset::new("okta", "Okta event hooks", "https://developer.okta.com/docs/concepts/event-hooks/")
        .signature(&["authorization"])
        .algorithm(Algorithm::Token)
        .encoding(Encoding::Plain)
        .id_in_body("eventId")
        .handshakes(&[Handshake::VerificationHeader])
        .waits(3)
        .retries("once, after a time-out or 5xx")
        .prefers_5xx()
        .notes("Whoever sees one request can send any other. The secret is the whole value of `Authorization`."),
];
