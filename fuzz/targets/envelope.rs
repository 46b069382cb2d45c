//! The scheme `envelope`: no two different envelopes share a signature, however their parts are cut out of one text.

use countersign::signature::{Message, SignError, Signer};
use countersign::{Keyring, Scheme, Timestamp};
use http::HeaderValue;

use super::input::{Input, other_secret};

/// Reads two moments in seconds, two ways to cut a text into four, and the text.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let moments = [input.number(), input.number()].map(|number| number.rem_euclid(1 << 40));
    let cuts = [[input.number(), input.number(), input.number()], [input.number(), input.number(), input.number()]];
    let text = input.rest();

    let [Some(one), Some(other)] = [0, 1].map(|nth| Envelope::cut(moments[nth], cuts[nth], text)) else { return };
    let [Ok(sent), Ok(other_sent)] = [&one, &other].map(Envelope::signature) else { return };
    assert_eq!(one == other, sent == other_sent, "{one:?} {other:?}");
}

/// All that is signed.
#[derive(Debug, PartialEq)]
struct Envelope<'a> {
    seconds: i64,
    id: &'a str,
    event_type: &'a str,
    content_type: &'a str,
    body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// `None` where a header would not be text.
    fn cut(seconds: i64, cuts: [i64; 3], text: &'a [u8]) -> Option<Self> {
        let mut rest = text;
        let mut part = |cut: i64| {
            let length = usize::try_from(cut.unsigned_abs()).unwrap_or(usize::MAX) % (rest.len() + 1);
            let (part, others) = rest.split_at(length);
            rest = others;
            std::str::from_utf8(part).ok()
        };
        let [id, event_type, content_type] = cuts.map(&mut part);
        Some(Self { seconds, id: id?, event_type: event_type?, content_type: content_type?, body: rest })
    }

    fn signature(&self) -> Result<HeaderValue, SignError> {
        let scheme = Scheme::named("envelope").expect("a preset");
        let now = Timestamp::from_micros(self.seconds * 1_000_000);
        let message = Message {
            id: Some(self.id),
            event_type: Some(self.event_type),
            content_type: Some(self.content_type),
            ..Message::new(now, self.body)
        };
        let signer = Signer::new(scheme.clone(), Keyring::new(other_secret(b"envelope"))).expect("a signer");
        let headers = signer.sign(&message)?;
        let signature = headers.iter().find(|(name, _)| scheme.is_signature_header(name)).expect("a signature");
        Ok(signature.1.clone())
    }
}
