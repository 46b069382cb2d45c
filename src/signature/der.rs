//! ECDSA signatures as most senders write them: two integers in DER, in the one spelling that DER allows.

/// The longest signature on a curve of 256 bits: two integers of 33 bytes, each behind two, behind two.
pub(super) const LONGEST: usize = 72;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const HALF: usize = 32;

/// The two integers of a signature, 32 bytes each; `None` for anything but their only spelling.
pub(super) fn read(text: &[u8]) -> Option<[u8; 2 * HALF]> {
    let [SEQUENCE, length, integers @ ..] = text else { return None };
    // A length of 128 and more has another form, and no signature is that long.
    if usize::from(*length) != integers.len() || *length >= 0x80 {
        return None;
    }
    let mut both = [0; 2 * HALF];
    let (first, second) = both.split_at_mut(HALF);
    let rest = integer(integers, first)?;
    integer(rest, second)?.is_empty().then_some(both)
}

/// The DER of two integers of 32 bytes each.
pub(super) fn write(both: &[u8]) -> Vec<u8> {
    let mut integers = Vec::with_capacity(LONGEST);
    for half in both.chunks(HALF) {
        let zeros = half.iter().take(HALF - 1).take_while(|byte| **byte == 0).count();
        let digits = half.get(zeros..).unwrap_or_default();
        let sign = usize::from(digits.first().is_some_and(|byte| *byte >= 0x80));
        integers.extend([INTEGER, length(digits.len() + sign)]);
        integers.extend(std::iter::repeat_n(0, sign));
        integers.extend(digits);
    }
    [&[SEQUENCE, length(integers.len())], integers.as_slice()].concat()
}

fn length(bytes: usize) -> u8 {
    u8::try_from(bytes).unwrap_or(u8::MAX)
}

/// Reads one integer into `half`; what follows it.
fn integer<'t>(text: &'t [u8], half: &mut [u8]) -> Option<&'t [u8]> {
    let [INTEGER, length, rest @ ..] = text else { return None };
    let (digits, rest) = rest.split_at_checked(usize::from(*length))?;
    let digits = match digits {
        // Negative ones and needless zeros are other spellings.
        [] | [0x80..=0xff, ..] | [0, 0..=0x7f, ..] => return None,
        [0, digits @ ..] if !digits.is_empty() => digits,
        digits => digits,
    };
    let start = half.len().checked_sub(digits.len())?;
    half.get_mut(start..)?.copy_from_slice(digits);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for (first, second) in [(1, 0x7f), (0x80, 0xff), (0, 0)] {
            for leading in [0, 1, 31] {
                let mut both = [0; 64];
                both[leading..32].fill(first);
                both[32 + leading..].fill(second);
                let text = write(&both);
                assert!(text.len() <= LONGEST);
                assert_eq!(read(&text), Some(both), "{first} {second} {leading}");
            }
        }
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let sound = [0x30, 6, 2, 1, 5, 2, 1, 6];
        assert!(read(&sound).is_some());
        for other in [
            &[][..],
            &[0x30, 6, 2, 1, 5, 2, 1],
            &[0x30, 7, 2, 1, 5, 2, 1, 6, 0],
            &[0x30, 6, 2, 1, 5, 2, 1, 6, 0],
            &[0x30, 0x81, 6, 2, 1, 5, 2, 1, 6],
            &[0x31, 6, 2, 1, 5, 2, 1, 6],
            &[0x30, 6, 3, 1, 5, 2, 1, 6],
            &[0x30, 6, 2, 1, 0x85, 2, 1, 6],
            &[0x30, 7, 2, 2, 0, 5, 2, 1, 6],
            &[0x30, 5, 2, 0, 2, 1, 6],
            &[0x30, 9, 2, 1, 5, 2, 1, 6, 2, 1, 7],
        ] {
            assert_eq!(read(other), None, "{other:?}");
        }
        let long = [&[0x30, 38, 2, 33, 1][..], &[0; 32], &[2, 1, 6]].concat();
        assert_eq!(read(&long), None);
    }
}
