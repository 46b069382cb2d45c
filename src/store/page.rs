//! A list in parts: each goes on where the one before it ended, however many rows there are.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{StoreError, StoreFuture};
use crate::Timestamp;

/// A part of a list.
///
/// A store looks at no more than [`Page::LOOKED_AT`] rows for it, so that a part costs the same in a table of millions. Where
/// few rows pass the filter it holds fewer than were asked for, or none, and yet there may be more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// What was found, those that changed last first.
    pub rows: Vec<T>,
    /// Where to go on. `None`: there are no more.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// So many rows are looked at for one part.
    pub const LOOKED_AT: u32 = 10_000;

    /// As a store of one's own says it.
    #[must_use]
    pub const fn new(rows: Vec<T>, next: Option<Cursor>) -> Self {
        Self { rows, next }
    }

    /// As many rows as are asked for, if there are as many: one part after another, of at most so many rows each.
    pub(super) async fn through<'a>(
        limit: u32,
        part: impl Fn(u32, Option<Cursor>) -> StoreFuture<'a, Self>,
    ) -> Result<Vec<T>, StoreError> {
        let Self { mut rows, mut next } = part(limit, None).await?;
        while let Some(after) = next {
            let found = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            let Some(missing) = limit.checked_sub(found).filter(|missing| *missing > 0) else { break };
            let page = part(missing, Some(after)).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(rows)
    }

    /// Of rows in order, each with its place, as many as are asked for.
    pub(super) fn of_rows(rows: impl IntoIterator<Item = (Cursor, T)>, after: Option<Cursor>, limit: u32) -> Self {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut rows = rows.into_iter().filter(|(place, _)| after.is_none_or(|after| *place < after));
        let taken: Vec<(Cursor, T)> = rows.by_ref().take(most).collect();
        let next = rows.next().and_then(|_| taken.last().map(|(place, _)| *place));
        Self { rows: taken.into_iter().map(|(_, row)| row).collect(), next }
    }
}

/// A place in a list: behind the row that changed then and has this number.
///
/// As text it is two numbers with a dot between them, which callers hand back as they got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub(super) updated: Timestamp,
    pub(super) id: i64,
}

impl Cursor {
    pub(super) const fn new(updated: Timestamp, id: i64) -> Self {
        Self { updated, id }
    }

    /// Before all that changed at this moment or later.
    #[must_use]
    pub const fn before(moment: Timestamp) -> Self {
        // Numbers of rows begin at one, or at nought.
        Self { updated: moment, id: i64::MIN }
    }

    /// When the row before it changed: what comes behind it changed then or earlier.
    #[must_use]
    pub const fn updated(self) -> Timestamp {
        self.updated
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.updated.as_micros(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let numbers = text.split_once('.').and_then(|(updated, id)| Some((updated.parse().ok()?, id.parse().ok()?)));
        let (updated, id) = numbers.ok_or(CursorError)?;
        Ok(Self { updated: Timestamp::from_micros(updated), id })
    }
}

/// Which index a database goes through for a list.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// That of ids: few rows have the same.
    Id,
    /// That of correlation ids.
    Correlation,
    /// That of states: nothing else is asked for.
    State,
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
impl FoundBy {
    /// What a filter asks for that has an id, or a correlation id.
    pub(super) const fn of(has_id: bool, has_correlation: bool) -> Self {
        match (has_id, has_correlation) {
            (true, _) => Self::Id,
            (false, true) => Self::Correlation,
            (false, false) => Self::State,
        }
    }
}

/// A text that is no [`Cursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no place in a list: take what the page before says, as it stands, or leave it out to begin with the newest")]
pub struct CursorError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for place in [
            Cursor::new(Timestamp::from_micros(1_700_000_000_000_000), 42),
            Cursor::before(Timestamp::from_micros(-1)),
            Cursor::new(Timestamp::from_micros(i64::MAX), i64::MAX),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", ".", "1", "1.", ".1", "1.2.3", "a.1", "99999999999999999999.1", "1 .1"] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text}");
        }
    }

    #[test]
    fn a_page_that_holds_all_there_is_does_not_go_on() {
        let at = |id| Cursor::new(Timestamp::from_micros(0), id);
        let rows = || [3, 2, 1].into_iter().map(|id| (at(id), id));
        assert_eq!(Page::of_rows(rows(), None, 3), Page::new(vec![3, 2, 1], None));
        assert_eq!(Page::of_rows(rows(), None, 2), Page::new(vec![3, 2], Some(at(2))));
        assert_eq!(Page::of_rows(rows(), Some(at(2)), 2), Page::new(vec![1], None));
    }
}
