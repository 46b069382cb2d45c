//! A page about each scheme, for people, written from the same table that the checks are made from.

use std::fmt::Write as _;

use super::{Algorithm, Carrier, IdOrigin, KeyBy, Scheme};
use crate::signature::{Encoding, Handshake};

impl Scheme {
    /// All that is to be known about it, in Markdown: its headers, what is signed, what stops a replay, what an id is
    /// worth, the provider's habits, and a quick start.
    ///
    /// `countersign schemes NAME` prints it.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = self.write_page(&mut page);
        page
    }

    fn write_page(&self, page: &mut String) -> std::fmt::Result {
        writeln!(page, "# {}: `{}`\n", self.provider(), self.name())?;
        writeln!(page, "<{}>\n", self.documentation())?;
        writeln!(page, "| | |\n|---|---|")?;
        writeln!(page, "| headers | {} |", self.header_list())?;
        writeln!(page, "| signature | {} |", self.signature_form())?;
        writeln!(page, "| signed | {} |", self.signed_form())?;
        writeln!(page, "| secret | {} |", self.secret_form())?;
        writeln!(page, "| timestamp | {} |", self.timestamp_form())?;
        writeln!(page, "| event id | {} |", self.id_form())?;
        writeln!(page, "| an answer | {} |", self.answer_form())?;
        let (wait, lease) = (self.in_flight_wait().as_millis(), self.lease().as_secs());
        writeln!(
            page,
            "| by default | such a delivery first waits {wait} ms for the result; a lease is {lease} s long |"
        )?;
        if let Some(retries) = self.retries() {
            writeln!(page, "| retries | {retries} |")?;
        }
        for handshake in self.handshakes() {
            let by = if handshake.is_answered() { "; answered by the receiver" } else { "" };
            writeln!(page, "| handshake | {handshake}{by} |")?;
        }
        writeln!(page, "\n**Replays.** {}\n", self.replay_protection())?;
        writeln!(page, "**The id.** {}\n", self.worth_of_id())?;
        if !self.facts.key_reason.is_empty() {
            writeln!(page, "**Events are known otherwise.** {}\n", self.facts.key_reason)?;
        }
        if !self.facts.notes.is_empty() {
            writeln!(page, "{}\n", self.facts.notes)?;
        }
        writeln!(page, "```text\n{}\n```", self.quick_start())
    }

    fn header_list(&self) -> String {
        let names: Vec<String> = self.headers().map(|name| format!("`{name}`")).collect();
        match names.len() {
            0 => "none: the signature stands in the body".to_owned(),
            // DocuSign numbers its own.
            1..=8 => names.join(", "),
            _ => format!("{} … {}", names.first().map_or("", |name| name), names.last().map_or("", |name| name)),
        }
    }

    fn signature_form(&self) -> String {
        if self.algorithm == Algorithm::Token {
            return "none; the secret itself is sent along, and compared in constant time".to_owned();
        }
        let (algorithm, encoding) = (self.algorithm, self.encoding);
        let form = match (&self.form, &self.carrier) {
            (Some(_), _) => String::new(),
            (None, Carrier::Whole { prefix }) if prefix.is_empty() => String::new(),
            (None, Carrier::Whole { prefix }) => format!(", behind `{prefix}`"),
            (None, Carrier::TimeFirst) => ", any of several behind the timestamp, with commas between them".to_owned(),
            (None, Carrier::List { separator: b' ', tag, .. }) => {
                format!(", any of several behind `{tag}`, with spaces between them")
            }
            (None, Carrier::List { separator, tag, .. }) => {
                format!(", any of several behind `{tag}`, with `{}` between them", char::from(*separator))
            }
        };
        let der = if encoding == Encoding::Base64 && algorithm == Algorithm::EcdsaP256 { " of DER" } else { "" };
        format!("{algorithm}, {encoding}{der}{form}")
    }

    fn signed_form(&self) -> String {
        let text = self.signed_text();
        // A template is code, a description is none.
        if self.form.is_some() || self.algorithm == Algorithm::Token { text } else { format!("`{text}`") }
    }

    fn secret_form(&self) -> String {
        use crate::secret::SecretFormat;
        match self.secret_format {
            SecretFormat::Text => "the text as it is shown, as bytes".to_owned(),
            SecretFormat::Base64 { prefix, min_bytes } => {
                format!("base64 of {min_bytes} bytes or more, with `{prefix}` before it or without")
            }
            SecretFormat::Hex => "hex digits, decoded".to_owned(),
            #[cfg(feature = "asymmetric")]
            SecretFormat::Ed25519 => "a public key, `whpk_` and base64".to_owned(),
            #[cfg(feature = "asymmetric")]
            SecretFormat::Ed25519Base64 => "a public key, base64, with `whpk_` before it or without".to_owned(),
            #[cfg(feature = "asymmetric")]
            SecretFormat::Ed25519Hex => "a public key, 64 hex digits".to_owned(),
            #[cfg(feature = "asymmetric")]
            SecretFormat::P256 => "a public key, base64".to_owned(),
            #[cfg(feature = "asymmetric")]
            SecretFormat::P256Jwk => "a public key, a JSON Web Key".to_owned(),
        }
    }

    fn timestamp_form(&self) -> String {
        let Some(unit) = self.time else { return "none is signed".to_owned() };
        let place = match (self.timestamp_header(), self.timestamp_field()) {
            (Some(name), _) => format!("`{name}`"),
            (None, Some(path)) => format!("the body's `{path}`"),
            (None, None) => "within the signature".to_owned(),
        };
        let window = self.window.past().as_secs();
        format!("{place}, {}, signed; {window} s to both sides", unit.as_str())
    }

    fn id_form(&self) -> String {
        let field = |path: &str| format!("the body's `{path}`");
        match (self.id_origin(), self.id_header(), self.id_field()) {
            (IdOrigin::SignedHeader, Some(name), _) => format!("`{name}`, signed"),
            (IdOrigin::SignedBody, Some(name), Some(path)) => {
                format!("{}, signed; else `{name}`, not signed", field(path))
            }
            (IdOrigin::SignedBody, _, Some(path)) if self.algorithm == Algorithm::Token => field(path),
            (IdOrigin::SignedBody, _, Some(path)) => format!("{}, signed", field(path)),
            (IdOrigin::SignedBody, ..) => "in the body, signed".to_owned(),
            (IdOrigin::Unsigned, Some(name), _) => format!("`{name}`, not signed"),
            _ => "none".to_owned(),
        }
    }

    fn answer_form(&self) -> String {
        let patience = match self.facts.patience {
            Some(1) => "within 1 s; ".to_owned(),
            Some(seconds) => format!("within {seconds} s; "),
            None => String::new(),
        };
        let status = self.in_flight_status.as_u16();
        let impatient = self.facts.patience.is_some_and(|seconds| seconds <= 5);
        let mode = if impatient { "; take deferred mode for work that may take longer" } else { "" };
        format!("{patience}{status} while another delivery of the event is handled{mode}")
    }

    fn replay_protection(&self) -> &'static str {
        if self.algorithm == Algorithm::Token {
            "Nothing stops them but the table of seen events, and a body with one byte more is another event."
        } else if self.key_by == KeyBy::Arrival {
            "Nothing stops them: each request is an event of its own."
        } else if self.time.is_none() {
            "No timestamp is signed: what stops a replay is the table of seen events alone, for as long as it remembers."
        } else {
            "The signed timestamp bounds them, and within its window the table of seen events stops them."
        }
    }

    fn worth_of_id(&self) -> &'static str {
        if self.key_by != KeyBy::SignedId && !matches!(self.key_by, KeyBy::ArrivalIfEmpty(_)) {
            return "Events are not known by it.";
        }
        match self.id_origin() {
            IdOrigin::SignedBody if self.algorithm == Algorithm::Token => {
                "It is as good as the secrecy of the connection. Events are known by it."
            }
            IdOrigin::SignedHeader => "The signature covers it, and events are known by it.",
            IdOrigin::SignedBody => {
                "The signature covers it, and events are known by it; those without it by the digest of their signed bytes."
            }
            IdOrigin::Unsigned => {
                "Anybody who holds one request can send it again under another id. It is a label, and events are known by \
                 the digest of their signed bytes."
            }
            IdOrigin::None => "There is none for a request. Events are known by the digest of their signed bytes.",
        }
    }

    fn quick_start(&self) -> String {
        let secret = if self.algorithm.is_asymmetric() { "public-key" } else { "secret" };
        let secret = match self.handshakes() {
            kinds if kinds.contains(&Handshake::HookSecret) => format!("--hook-secret-file {secret}.txt"),
            kinds if kinds.contains(&Handshake::HubChallenge) => {
                format!("--secret-file {secret}.txt --verify-token-file verify-token.txt")
            }
            _ => format!("--secret-file {secret}.txt"),
        };
        let url = if self.signs_url() { " --public-url https://hooks.example.com" } else { "" };
        format!(
            "countersign receive --scheme {} {secret}{url} \\\n    --listen 127.0.0.1:8080 --upstream \
             http://127.0.0.1:3000",
            self.name()
        )
    }
}
