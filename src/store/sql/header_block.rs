//! Headers as one block of bytes, so that no database reads, folds or re-encodes them.
//!
//! A format byte, then for each field line: the name's length (2 bytes), the name, the value's length (4 bytes), the
//! value. Lengths are big-endian. Lines stand in the order of the map, and those of one name in theirs.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The only format so far.
const FORMAT: u8 = 1;

pub(super) fn encode(headers: &HeaderMap) -> Vec<u8> {
    let lines: usize = headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum();
    let mut block = Vec::with_capacity(1 + lines);
    block.push(FORMAT);
    for (name, value) in headers {
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        // `http` holds no name longer than 64 KiB, and no map of headers is near 4 GiB.
        let (Ok(name_length), Ok(value_length)) = (u16::try_from(name.len()), u32::try_from(value.len())) else {
            continue;
        };
        block.extend_from_slice(&name_length.to_be_bytes());
        block.extend_from_slice(name);
        block.extend_from_slice(&value_length.to_be_bytes());
        block.extend_from_slice(value);
    }
    block
}

/// `None` where this is no such block.
pub(super) fn decode(block: &[u8]) -> Option<HeaderMap> {
    let (&format, mut rest) = block.split_first()?;
    if format != FORMAT {
        return None;
    }
    let mut headers = HeaderMap::new();
    while !rest.is_empty() {
        let length = u16::from_be_bytes(*take(&mut rest, 2)?.first_chunk()?);
        let name = HeaderName::from_bytes(take(&mut rest, usize::from(length))?).ok()?;
        let length = u32::from_be_bytes(*take(&mut rest, 4)?.first_chunk()?);
        let value = HeaderValue::from_bytes(take(&mut rest, usize::try_from(length).ok()?)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use http::header::{LINK, VARY};

    use super::*;

    #[test]
    fn headers_come_back_in_order_with_all_their_values() {
        let mut headers = HeaderMap::new();
        headers.append(VARY, HeaderValue::from_static(""));
        headers.append(LINK, HeaderValue::from_static("b"));
        headers.append(VARY, HeaderValue::from_bytes(b"\xff\tx").expect("a value"));
        headers.append(LINK, HeaderValue::from_static("a"));
        let decoded = decode(&encode(&headers)).expect("a block");
        assert_eq!(decoded.iter().collect::<Vec<_>>(), headers.iter().collect::<Vec<_>>());
        assert_eq!(decode(&encode(&HeaderMap::new())), Some(HeaderMap::new()));
    }

    #[test]
    fn a_block_that_was_cut_or_changed_is_refused_without_a_panic() {
        let mut headers = HeaderMap::new();
        headers.append(LINK, HeaderValue::from_static("value"));
        let block = encode(&headers);
        for length in 0..block.len() {
            let cut = decode(&block[..length]);
            assert!(cut.is_none_or(|headers| length == 1 && headers.is_empty()), "{length}");
        }
        for position in 0..block.len() {
            let mut changed = block.clone();
            changed[position] ^= 0x80;
            let _ = decode(&changed);
        }
        assert_eq!(decode(&[2]), None);
        assert_eq!(decode(&[FORMAT, 0xff, 0xff, b'a']), None);
    }
}
