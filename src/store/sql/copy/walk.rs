//! A table of both ends at once, in the order of its places: which rows meet, and which have nobody to meet.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::end::AnyEnd;
use super::report::CopyError;
use super::row::{Place, Row};
use super::table::Table;
use crate::store::StoreError;

/// A row of the source, and what stands at its place in the target; or the other way round.
#[derive(Debug)]
pub(super) enum Meeting {
    Missing(Row),
    Equal(Row),
    Differing { row: Row, columns: Vec<&'static str> },
    Foreign(Row),
}

/// Reads a page of each end at a time.
pub(super) struct Walk<'e> {
    table: Table,
    source: Reading<'e>,
    /// `None`: there is nothing at all.
    target: Option<Reading<'e>>,
}

struct Reading<'e> {
    end: &'e mut AnyEnd,
    table: Table,
    page: VecDeque<Row>,
    /// Where the next page begins; none behind the last.
    next: Option<Place>,
}

impl<'e> Walk<'e> {
    pub(super) fn of(table: Table, source: &'e mut AnyEnd, target: Option<&'e mut AnyEnd>) -> Self {
        Self { table, source: Reading::of(table, source), target: target.map(|end| Reading::of(table, end)) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Meeting>, CopyError> {
        let table = self.table;
        let ours = self.source.place().await.map_err(CopyError::Source)?;
        let theirs = match &mut self.target {
            Some(target) => target.place().await.map_err(CopyError::Target)?,
            None => None,
        };
        let order = match (ours, theirs) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(ours), Some(theirs)) => ours.cmp(&theirs),
        };
        let ours = if order.is_le() { self.source.page.pop_front() } else { None };
        let theirs = match &mut self.target {
            Some(target) if order.is_ge() => target.page.pop_front(),
            _ => None,
        };
        Ok(match (ours, theirs) {
            (Some(row), None) => Some(Meeting::Missing(row)),
            (None, Some(row)) => Some(Meeting::Foreign(row)),
            (Some(row), Some(theirs)) => {
                let columns = row.differences(&theirs, table);
                Some(if columns.is_empty() { Meeting::Equal(row) } else { Meeting::Differing { row, columns } })
            }
            (None, None) => None,
        })
    }

    pub(super) fn target(&self) -> Option<&AnyEnd> {
        self.target.as_ref().map(|target| &*target.end)
    }

    /// Adds rows that were missing. They lie before whatever the target is read from next, so that none is met again.
    pub(super) async fn add(&mut self, rows: &[Row]) -> Result<(), CopyError> {
        let Some(target) = self.target.as_mut().filter(|_| !rows.is_empty()) else { return Ok(()) };
        match target.end.insert(self.table, rows).await {
            Err(StoreError::Rejected(_)) => {}
            added => return added.map_err(CopyError::Target),
        }
        // One of them: the others go, and that one is named.
        for row in rows {
            match target.end.insert(self.table, std::slice::from_ref(row)).await {
                Err(StoreError::Rejected(why)) => return Err(CopyError::Refused { row: row.name(self.table), why }),
                added => added.map_err(CopyError::Target)?,
            }
        }
        Ok(())
    }
}

impl<'e> Reading<'e> {
    fn of(table: Table, end: &'e mut AnyEnd) -> Self {
        Self { end, table, page: VecDeque::new(), next: Some(Place::FIRST) }
    }

    /// Where the next row stands.
    async fn place(&mut self) -> Result<Option<Place>, StoreError> {
        if let (true, Some(from)) = (self.page.is_empty(), self.next) {
            self.page = self.end.rows(self.table, from).await?.into();
            self.next = self.page.back().and_then(|row| row.place(self.table).next(self.table));
        }
        Ok(self.page.front().map(|row| row.place(self.table)))
    }
}
