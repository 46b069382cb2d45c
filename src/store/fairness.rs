//! Who gets what of a claim, so that nobody waits for long behind another: the arithmetic that all stores share.
//!
//! What cannot be divided is left to chance. A claim for one free slot gets one message: with a fixed order it would
//! always come from the same endpoint, and from the same lane.

use super::{StoreError, Token};

/// One in so many messages of an endpoint's share has been tried before, if there are enough of both.
const TRIED_ONE_IN: u32 = 4;

/// What is left to chance in one claim. The two are drawn apart: an endpoint that only came to its turn at a certain
/// number would always meet the same lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    remainder: u32,
    lane: u32,
}

impl Chance {
    pub(super) fn draw() -> Result<Self, StoreError> {
        let [a, b, c, d, e, f, g, h, ..] = *Token::random()?.as_bytes();
        Ok(Self { remainder: u32::from_le_bytes([a, b, c, d]), lane: u32::from_le_bytes([e, f, g, h]) })
    }
}

/// Deals `limit` out evenly: how many of each endpoint's messages are taken, of which there are so many that its quota
/// allows. What one leaves goes to the others.
pub(super) fn deal(limit: u32, wanted: &[u32], chance: Chance) -> Vec<u32> {
    let mut dealt = vec![0_u32; wanted.len()];
    let mut left = limit;
    loop {
        let mut open: Vec<(&mut u32, u32)> =
            dealt.iter_mut().zip(wanted.iter().copied()).filter(|(has, wants)| **has < *wants).collect();
        let players = u32::try_from(open.len()).unwrap_or(u32::MAX);
        if players == 0 || left == 0 {
            return dealt;
        }
        if left < players {
            let first = usize::try_from(chance.remainder % players).unwrap_or_default();
            open.rotate_left(first);
            open.into_iter().zip(0..left).for_each(|((has, _), _)| *has += 1);
            return dealt;
        }
        let share = left / players;
        for (has, wants) in open {
            let more = share.min(wants - *has);
            *has += more;
            left -= more;
        }
    }
}

/// How many of an endpoint's share are taken from those that were never tried, and from those that were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    pub(super) fresh: u32,
    pub(super) tried: u32,
}

impl Lanes {
    /// Divides a share between the lanes, of which each has so many.
    pub(super) fn divide(share: u32, fresh: u32, tried: u32, chance: Chance) -> Self {
        let one_in = (chance.lane % TRIED_ONE_IN).saturating_add(share) / TRIED_ONE_IN;
        let tried = one_in.max(share.saturating_sub(fresh)).min(tried);
        Self { fresh: share.saturating_sub(tried).min(fresh), tried }
    }
}

/// Whether a message has been tried before. One that is replayed has been, and must not get ahead of new ones.
pub(super) const fn is_tried(attempts: u32, replays: u32) -> bool {
    attempts > 0 || replays > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANCE: Chance = Chance { remainder: 0, lane: 0 };

    #[test]
    fn c088_what_there_is_is_dealt_out_evenly() {
        assert_eq!(deal(100, &[1_000, 1], CHANCE), [99, 1]);
        assert_eq!(deal(10, &[3, 100, 100], CHANCE), [3, 4, 3]);
        assert_eq!(deal(10, &[0, 2, 3], CHANCE), [0, 2, 3]);
        assert_eq!(deal(0, &[5], CHANCE), [0]);
        assert_eq!(deal(u32::MAX, &[u32::MAX, 7], CHANCE), [u32::MAX - 7, 7]);
        assert!(deal(5, &[], CHANCE).is_empty());
    }

    #[test]
    fn what_cannot_be_divided_goes_to_each_in_turn() {
        let to = |remainder| deal(1, &[9, 0, 9, 9], Chance { remainder, lane: 0 });
        assert_eq!([to(0), to(1), to(2), to(3)], [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]);
    }

    #[test]
    fn one_in_four_has_been_tried_before() {
        let divide = |share, fresh, tried, lane| Lanes::divide(share, fresh, tried, Chance { remainder: 0, lane });
        assert_eq!(divide(8, 100, 100, 0), Lanes { fresh: 6, tried: 2 });
        assert_eq!(divide(8, 100, 1, 0), Lanes { fresh: 7, tried: 1 });
        assert_eq!(divide(8, 3, 100, 0), Lanes { fresh: 3, tried: 5 });
        assert_eq!(divide(8, 1, 2, 0), Lanes { fresh: 1, tried: 2 });
        let of_one: u32 = (0..4).map(|lane| divide(1, 9, 9, lane).tried).sum();
        assert_eq!(of_one, 1, "one claim of a single message in four");
        assert_eq!(divide(u32::MAX, u32::MAX, 0, 3), Lanes { fresh: u32::MAX, tried: 0 });
    }
}
