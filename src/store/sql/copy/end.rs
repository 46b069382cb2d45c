//! What a database brings to a copy: a connection of its own that reads tables a page at a time, and adds rows.

use super::row::{Cell, Place, Row};
use super::table::{Column, Table};
use crate::Timestamp;
use crate::store::StoreFuture;

/// How many rows a page has at most.
pub(in crate::store::sql) const PAGE_ROWS: i64 = 500;

/// How many bytes, unless its first row alone has more.
pub(in crate::store::sql) const PAGE_BYTES: i64 = 8 << 20;

/// One end of a copy. It ends with its connection, which is in no pool.
pub(in crate::store::sql) trait End: Send {
    /// From here on it sees everything as it is now, whoever writes meanwhile. Says when that is, by the store's clock.
    fn snapshot(&mut self) -> StoreFuture<'_, Timestamp>;

    /// What is being run, by leases that end after this moment.
    fn running(&mut self, now: Timestamp) -> StoreFuture<'_, Running>;

    /// How many sagas there are. They are not carried.
    fn sagas(&mut self) -> StoreFuture<'_, i64>;

    /// The rows from a place on, in their order: a page of them, and none only where there are none.
    fn rows(&mut self, table: Table, from: Place) -> StoreFuture<'_, Vec<Row>>;

    /// Adds rows, all or none of them. One that is there stays as it is.
    fn insert<'a>(&'a mut self, table: Table, rows: &'a [Row]) -> StoreFuture<'a, ()>;

    /// Has new rows numbered behind those that are there.
    fn number_behind(&mut self, table: Table) -> StoreFuture<'_, ()>;

    /// Why this database cannot hold what another one can.
    fn misfit(&self, column: &Column, cell: &Cell) -> Option<&'static str>;
}

/// An end, of whatever kind of database.
pub(super) type AnyEnd = dyn End + 'static;

/// What is being run at this moment, and for how long it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// Events that are `processing`.
    pub events: u64,
    /// Messages that are `delivering`.
    pub messages: u64,
    /// When the last lease ends, unless it is renewed; by the store's clock.
    pub until: Option<Timestamp>,
}

/// Of rows of these sizes, how many go into one page.
pub(in crate::store::sql) fn page_of(sizes: impl IntoIterator<Item = i64>) -> usize {
    let mut total = 0_i64;
    let fits = |size: &i64| {
        let is_first = total == 0;
        total = total.saturating_add(*size).max(1);
        is_first || total <= PAGE_BYTES
    };
    sizes.into_iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded_by_bytes_and_has_one_row_at_least() {
        assert_eq!(page_of([]), 0);
        assert_eq!(page_of([i64::MAX, 1]), 1);
        assert_eq!(page_of([0, 0, PAGE_BYTES, 1]), 2);
        assert_eq!(page_of([PAGE_BYTES / 2, PAGE_BYTES / 2, 1]), 2);
    }
}
