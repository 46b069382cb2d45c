//! Ids and keys: what is accepted is kept whole, every key reads back, and no two events share one.

use countersign::{DedupKey, Digest, EventId};

/// Reads the input as an id, as a key, and as two ids with a line break between them.
pub(crate) fn run(data: &[u8]) {
    an_id_is_kept_whole_or_refused(data);
    a_key_reads_back(data);
    if let Some(at) = data.iter().position(|byte| *byte == b'\n') {
        two_ids_have_two_keys(&data[..at], &data[at + 1..]);
    }
}

fn an_id_is_kept_whole_or_refused(data: &[u8]) {
    let fits = (1..=255).contains(&data.len());
    let plain = std::str::from_utf8(data).is_ok_and(|text| !text.chars().any(char::is_control));
    let id = EventId::from_bytes(data);
    assert_eq!(id.is_ok(), fits && plain, "{id:?}");

    let Ok(id) = id else { return };
    assert_eq!(id.as_str().as_bytes(), data);
    let key = DedupKey::from_id(&id);
    assert_eq!(DedupKey::parse(key.as_str()).as_ref(), Ok(&key));
    assert_ne!(key, DedupKey::from_digest(&Digest::of(data)));
    assert!(!key.as_str().starts_with("sha256:"), "{key} poses as a digest");
}

fn a_key_reads_back(data: &[u8]) {
    let digest = DedupKey::from_digest(&Digest::of(data));
    assert_eq!(DedupKey::parse(digest.as_str()).as_ref(), Ok(&digest));

    if let Some(key) = std::str::from_utf8(data).ok().and_then(|text| DedupKey::parse(text).ok()) {
        assert_eq!(key.as_str().as_bytes(), data);
        assert_eq!(DedupKey::parse(key.as_str()).as_ref(), Ok(&key));
    }
}

fn two_ids_have_two_keys(one: &[u8], other: &[u8]) {
    if let (Ok(one), Ok(other)) = (EventId::from_bytes(one), EventId::from_bytes(other)) {
        assert_eq!(one == other, DedupKey::from_id(&one) == DedupKey::from_id(&other), "{one:?} {other:?}");
    }
}
