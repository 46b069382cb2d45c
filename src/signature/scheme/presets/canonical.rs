//! Senders that sign a canonical form of the request.

use super::super::preset::Preset;
use crate::secret::SecretFormat;
use crate::signature::message_signature;
use crate::signature::window::Unit;

pub(super) const ROWS: &[Preset] = &[RFC9421];

pub(in super::super) const RFC9421: Preset = Preset::new(
    "rfc9421",
    "HTTP Message Signatures",
    "https://www.rfc-editor.org/rfc/rfc9421",
)
.signature(&["signature"])
.base64()
.secret(SecretFormat::Base64 { prefix: "whsec_", min_bytes: 16 })
.timed(Unit::Seconds)
.form(message_signature::form)
.promises_equal_bodies()
.notes(
    "What has to be covered is configured. The body is covered by way of `content-digest`, which is computed again. \
             Algorithm, label, key id and the place of the event's id are configured too.",
);
