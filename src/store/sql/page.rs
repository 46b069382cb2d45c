//! Which rows a part of a list looks at: a stretch of the index that leads from what changed last to what changed first.

use super::row::{self, Cells};
use crate::Timestamp;
use crate::store::{Cursor, Page, StoreError};

/// From a row on, which may be left open, and below another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) below: (i64, i64),
    pub(super) from: (i64, i64),
    ends_at: Option<Cursor>,
}

impl Stretch {
    /// All that comes behind `after`.
    pub(super) fn behind(after: Option<Cursor>) -> Self {
        let below = after.map_or((i64::MAX, i64::MAX), |after| (after.updated.as_micros(), after.id));
        Self { below, from: (i64::MIN, i64::MIN), ends_at: None }
    }

    /// Down to this row, where there are so many.
    pub(super) fn down_to(self, edge: Option<&impl Cells>) -> Result<Self, StoreError> {
        let Some(edge) = edge else { return Ok(self) };
        let place = place(edge)?;
        Ok(Self { from: (place.updated.as_micros(), place.id), ends_at: Some(place), ..self })
    }

    /// Of rows of which one more was asked for than the page holds.
    pub(super) fn page<T, R: Cells>(
        self,
        mut rows: Vec<R>,
        limit: u32,
        readable: impl FnOnce(&[R]) -> Vec<T>,
    ) -> Result<Page<T>, StoreError> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > most;
        rows.truncate(most);
        let next = if has_more { rows.last().map(place).transpose()? } else { self.ends_at };
        Ok(Page::new(readable(&rows), next))
    }
}

/// One more than a page, which tells whether it goes on.
pub(super) fn one_more(limit: u32) -> i64 {
    i64::from(limit) + 1
}

fn place(row: &impl Cells) -> Result<Cursor, StoreError> {
    Ok(Cursor::new(Timestamp::from_micros(row::number(row, "updated")?), row::number(row, "id")?))
}
