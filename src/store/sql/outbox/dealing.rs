//! How a claim's limit is dealt out among endpoints of which only the names are known: how much each of them has shows when
//! it is asked for more.
//!
//! So it goes in rounds. Each deals what is left evenly among those that may have more; who gives less than it was asked
//! for has no more.

use std::sync::Arc;

use super::database::{Lane, Share};
use crate::store::Endpoint;
use crate::store::fairness::{self, Chance, Lanes};

/// What a claim gets, and from whom.
#[derive(Debug)]
pub(super) struct Dealing {
    left: u32,
    chance: Chance,
    sources: Vec<Source>,
}

/// An endpoint, and what may be taken of it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) endpoint: Arc<Endpoint>,
    quota: u32,
    taken: u32,
    lanes: [State; 3],
}

#[derive(Clone, Copy, Debug)]
struct State {
    is_open: bool,
    /// How many messages will be found again that were looked at in this claim, and are passed over.
    passed_over: u32,
}

/// What is asked of one lane in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) source: usize,
    pub(super) lane: Lane,
    pub(super) most: u32,
}

impl Dealing {
    pub(super) const fn new(limit: u32, chance: Chance) -> Self {
        Self { left: limit, chance, sources: Vec::new() }
    }

    pub(super) fn add(&mut self, endpoint: Endpoint, quota: u32, lanes: [bool; 3]) {
        let lanes = lanes.map(|is_open| State { is_open, passed_over: 0 });
        self.sources.push(Source { endpoint: Arc::new(endpoint), quota, taken: 0, lanes });
    }

    pub(super) fn source(&self, place: usize) -> Option<&Source> {
        self.sources.get(place)
    }

    /// What to ask for next. Nothing: the limit is reached, or there is no more.
    pub(super) fn round(&self) -> Vec<Asked> {
        // Over all rounds, so that what one leaves goes to those who have the least.
        let taken: u32 = self.sources.iter().map(|source| source.taken).fold(0, u32::saturating_add);
        let wanted = |source: &Source| source.taken.saturating_add(source.wanted(self.left));
        let wanted: Vec<u32> = self.sources.iter().map(wanted).collect();
        let shares = fairness::deal(taken.saturating_add(self.left), &wanted, self.chance);
        let mut left = self.left;
        let mut round = Vec::new();
        for (place, (source, share)) in self.sources.iter().zip(shares).enumerate() {
            let share = share.saturating_sub(source.taken).min(left);
            left -= share;
            for (lane, most) in source.divide(share, self.chance) {
                if most > 0 {
                    let most = most.saturating_add(source.lane(lane).passed_over);
                    round.push(Asked { source: place, lane, most });
                }
            }
        }
        round
    }

    /// As an answer to what was asked of it, a lane gave so many. What was held up in it is not looked at twice.
    pub(super) fn given(&mut self, asked: Asked, given: u32) {
        let Some(source) = self.sources.get_mut(asked.source) else { return };
        if given < asked.most || asked.lane == Lane::HeldUp {
            source.lane_mut(asked.lane).is_open = false;
        }
    }

    /// One of a source is taken, or has come to its end: it counts.
    pub(super) fn take(&mut self, place: usize) {
        if let Some(source) = self.sources.get_mut(place) {
            source.quota = source.quota.saturating_sub(1);
            source.taken = source.taken.saturating_add(1);
            self.left = self.left.saturating_sub(1);
        }
    }

    /// One will be found again, and must be passed over.
    pub(super) fn pass_over(&mut self, asked: Asked) {
        if let Some(source) = self.sources.get_mut(asked.source) {
            let lane = source.lane_mut(asked.lane);
            lane.passed_over = lane.passed_over.saturating_add(1);
        }
    }
}

impl Source {
    fn wanted(&self, left: u32) -> u32 {
        if self.lanes.iter().any(|lane| lane.is_open) { self.quota.min(left) } else { 0 }
    }

    /// What was held up comes first: it is rare, and most of it is held up still.
    fn divide(&self, share: u32, chance: Chance) -> Vec<(Lane, u32)> {
        if self.lane(Lane::HeldUp).is_open {
            return vec![(Lane::HeldUp, share)];
        }
        let of = |lane| if self.lane(lane).is_open { u32::MAX } else { 0 };
        let Lanes { fresh, tried } = Lanes::divide(share, of(Lane::Fresh), of(Lane::Tried), chance);
        vec![(Lane::Fresh, fresh), (Lane::Tried, tried)]
    }

    const fn lane(&self, lane: Lane) -> State {
        let [fresh, tried, held_up] = self.lanes;
        match lane {
            Lane::Fresh => fresh,
            Lane::Tried => tried,
            Lane::HeldUp => held_up,
        }
    }

    const fn lane_mut(&mut self, lane: Lane) -> &mut State {
        let [fresh, tried, held_up] = &mut self.lanes;
        match lane {
            Lane::Fresh => fresh,
            Lane::Tried => tried,
            Lane::HeldUp => held_up,
        }
    }
}

impl Asked {
    pub(super) fn share<'a>(&self, dealing: &'a Dealing) -> Option<Share<'a>> {
        let source = dealing.source(self.source)?;
        Some(Share { endpoint: &source.endpoint.name, lane: self.lane, most: self.most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn dealing(limit: u32, sources: &[(u32, [bool; 3])]) -> Dealing {
        let mut dealing = Dealing::new(limit, Chance::draw().expect("chance"));
        for (number, (quota, lanes)) in sources.iter().enumerate() {
            let name = Name::new(&format!("endpoint {number}")).expect("a name");
            dealing.add(Endpoint::new(name, "https://example.com"), *quota, *lanes);
        }
        dealing
    }

    /// Lets each source have so many of each lane, and says how many were taken of it.
    fn drain(dealing: &mut Dealing, mut has: Vec<[u32; 3]>) -> (Vec<u32>, usize) {
        let (mut taken, mut rounds) = (vec![0; has.len()], 0);
        loop {
            let round = dealing.round();
            if round.is_empty() {
                return (taken, rounds);
            }
            rounds += 1;
            for asked in round {
                let has = &mut has[asked.source][asked.lane as usize];
                let given = asked.most.min(*has);
                *has -= given;
                taken[asked.source] += given;
                dealing.given(asked, given);
                (0..given).for_each(|_| dealing.take(asked.source));
            }
        }
    }

    #[test]
    fn what_one_leaves_goes_to_the_others_in_a_few_rounds() {
        let open = [true, true, false];
        let mut two = dealing(100, &[(u32::MAX, open), (u32::MAX, open)]);
        let (taken, rounds) = drain(&mut two, vec![[1_000, 0, 0], [1, 0, 0]]);
        assert_eq!(taken, [99, 1]);
        assert!(rounds <= 4, "{rounds}");

        let mut three = dealing(10, &[(3, open), (u32::MAX, open), (0, open)]);
        assert_eq!(drain(&mut three, vec![[9, 9, 0], [9, 9, 0], [9, 9, 0]]).0, [3, 7, 0]);
    }

    #[test]
    fn one_in_four_has_been_tried_before_where_there_are_enough_of_both() {
        let mut one = dealing(8, &[(u32::MAX, [true, true, false])]);
        let round = one.round();
        let of = |lane| round.iter().filter(|asked| asked.lane == lane).map(|asked| asked.most).sum::<u32>();
        assert!((2..=3).contains(&of(Lane::Tried)) && of(Lane::Fresh) + of(Lane::Tried) == 8, "{round:?}");
        assert_eq!(drain(&mut one, vec![[1, 100, 0]]).0, [8]);
    }

    #[test]
    fn what_was_held_up_is_looked_at_once_in_a_claim() {
        let mut one = dealing(5, &[(u32::MAX, [true, false, true])]);
        let [held_up] = one.round()[..] else { panic!("one lane is asked") };
        assert_eq!((held_up.lane, held_up.most), (Lane::HeldUp, 5));
        one.given(held_up, 5);
        let [fresh] = one.round()[..] else { panic!("one lane is asked") };
        assert_eq!((fresh.lane, fresh.most), (Lane::Fresh, 5));
        one.pass_over(fresh);
        assert_eq!(one.round()[0].most, 6, "the one that was passed over is found again");
    }
}
