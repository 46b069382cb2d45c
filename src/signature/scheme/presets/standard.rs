//! Senders that sign id, timestamp and body: the good shape. The timestamp bounds replays, and the id is a sound key.

use super::super::preset::Piece::{Body, Header, Id, Lit, Time};
use super::super::preset::Preset;
use crate::secret::SecretFormat;
use crate::signature::Handshake;
use crate::signature::window::Unit;

pub(super) const ROWS: &[Preset] = &[
    STANDARD,
    ENVELOPE,
    SVIX,
    CLERK,
    STANDARD
        .renamed("openai", "OpenAI", "https://platform.openai.com/docs/guides/webhooks")
        .retries("for up to 72 hours, with growing pauses")
        .notes("OpenAI's own libraries also take a signature without its tag `v1,`, which is refused here."),
    STANDARD.renamed("anthropic", "Anthropic", "https://docs.claude.com/en/api/webhooks"),
    CLERK
        .renamed("resend", "Resend", "https://resend.com/docs/dashboard/webhooks/verify-webhooks-requests")
        .retries("after 5 s, 5 min, 30 min, 2 h, 5 h and 10 h"),
    STANDARD
        .renamed("gitlab-signing-token", "GitLab", "https://docs.gitlab.com/user/project/integrations/webhooks/")
        .waits(10)
        .retries("none; an endpoint that fails repeatedly is disabled, at first for a while")
        .notes("The newer way of GitLab; `gitlab-token` is the older one, which proves little."),
    STANDARD
        .renamed("supabase", "Supabase auth hooks", "https://supabase.com/docs/guides/auth/auth-hooks")
        .secret(SecretFormat::Base64 { prefix: "v1,whsec_", min_bytes: 24 })
        .waits(5)
        .notes("Supabase shows the secret with `v1,` before it, which is no part of it: with it or without is the same key."),
    TWITCH,
];

pub(in super::super) const STANDARD: Preset = Preset::new(
    "standard",
    "Standard Webhooks",
    "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
)
.signature(&["webhook-signature"])
.list(b' ', "v1,")
.base64()
.timestamp("webhook-timestamp", Unit::Seconds)
.id("webhook-id")
.signs(&[Id, Lit("."), Time, Lit("."), Body])
.secret(WHSEC)
.promises_equal_bodies()
.waits(15)
.retries("the sender's choice; the specification's example goes on for three days")
.notes("An id with a dot is refused: the dot parts the signed text, and `a.1` + `2` would be signed like `a` + `1.2`.");

pub(in super::super) const ENVELOPE: Preset = Preset::new(
    "envelope",
    "countersign",
    "https://docs.rs/countersign/latest/countersign/signature/struct.Scheme.html",
)
.signature(&["webhook-signature"])
.list(b' ', "v1e,")
.base64()
.timestamp("webhook-timestamp", Unit::Seconds)
.id("webhook-id")
.signs(&[Lit("countersign.envelope.v1\0"), Time, Id, Header("webhook-type"), Header("content-type"), Body])
.length_prefixed()
.secret(WHSEC)
.promises_equal_bodies()
.waits(15)
.retries("the sender's choice")
.notes("Every part but the first stands behind its length in 8 bytes, so that no two envelopes share a signed text.");

pub(in super::super) const SVIX: Preset = STANDARD
    .renamed("svix", "Svix", "https://docs.svix.com/receiving/verifying-payloads/how-manual")
    .signature(&["svix-signature"])
    .timestamp("svix-timestamp", Unit::Seconds)
    .id("svix-id")
    .also(&["webhook-signature"], "webhook-timestamp", "webhook-id")
    .waits(15)
    .retries("after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h")
    .notes("A request is read under the names of one family, that of its signature: ids never go with the other's.");

const CLERK: Preset = SVIX
    .renamed("clerk", "Clerk", "https://clerk.com/docs/webhooks/sync-data")
    // Some of its secrets have 18 bytes.
    .secret(SecretFormat::Base64 { prefix: "whsec_", min_bytes: 16 })
    .waits(15)
    .retries("after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h");

const TWITCH: Preset =
    Preset::new("twitch", "Twitch EventSub", "https://dev.twitch.tv/docs/eventsub/handling-webhook-events/")
        .signature(&["twitch-eventsub-message-signature"])
        .prefix("sha256=")
        .timestamp("twitch-eventsub-message-timestamp", Unit::Rfc3339)
        .window(600)
        .id("twitch-eventsub-message-id")
        .signs(&[Id, Time, Body])
        .handshakes(&[Handshake::CallbackVerification])
        .waits(3)
        .retries("a few times; a subscription whose endpoint keeps failing is revoked")
        .notes("`Twitch-Eventsub-Message-Type` is not signed: tell a challenge or a revocation by the body.");

/// The form of secrets of Standard Webhooks; its specification asks for 24 bytes.
const WHSEC: SecretFormat = SecretFormat::Base64 { prefix: "whsec_", min_bytes: 24 };
