//! Rows as a copy carries them: as they are, whether or not anybody could read them as a receipt or a message.

use super::table::{Column, Table};

/// Where a row stands in its table: its number; or whose history it belongs to, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::sql) struct Place(pub(in crate::store::sql) i64, pub(in crate::store::sql) i64);

impl Place {
    /// Before all others.
    pub(super) const FIRST: Self = Self(i64::MIN, i64::MIN);

    /// The next one behind it in its table; none behind the last.
    pub(super) fn next(self, table: Table) -> Option<Self> {
        let behind = if table.is_history() { self.1.checked_add(1) } else { None };
        match behind {
            Some(number) => Some(Self(self.0, number)),
            None => self.0.checked_add(1).map(|number| Self(number, i64::MIN)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::sql) enum Cell {
    Null,
    Number(i64),
    /// Text too: not every database holds it to be UTF-8.
    Bytes(Vec<u8>),
}

/// The cells of [`Table::columns`], in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::sql) struct Row(pub(in crate::store::sql) Vec<Cell>);

impl Row {
    /// Keys are never null.
    pub(in crate::store::sql) fn place(&self, table: Table) -> Place {
        let number = |at: usize| match self.0.get(at) {
            Some(Cell::Number(number)) => *number,
            _ => i64::MIN,
        };
        if table.is_history() { Place(number(0), number(1)) } else { Place(number(0), i64::MIN) }
    }

    /// How a row is named for people.
    pub(super) fn name(&self, table: Table) -> String {
        let Place(first, second) = self.place(table);
        let columns = table.columns();
        match columns {
            [of, number, ..] if table.is_history() => {
                format!("{}, {} {first}, {} {second}", table.as_str(), of.name, number.name)
            }
            _ => format!("{}, id {first}", table.as_str()),
        }
    }

    pub(super) fn cells(&self, table: Table) -> impl Iterator<Item = (&'static Column, &Cell)> {
        table.columns().iter().zip(&self.0)
    }

    /// How many bytes it takes up, about.
    pub(super) fn size(&self) -> usize {
        let size = |cell: &Cell| match cell {
            Cell::Bytes(bytes) => bytes.len(),
            Cell::Null | Cell::Number(_) => 0,
        };
        self.0.iter().map(|cell| size_of::<Cell>() + size(cell)).sum()
    }

    /// The state that it is counted under. Somebody may have written anything there.
    pub(super) fn state(&self, table: Table) -> Option<String> {
        match self.0.get(table.state()?)? {
            Cell::Bytes(state) => Some(String::from_utf8_lossy(state).into_owned()),
            Cell::Null | Cell::Number(_) => None,
        }
    }

    /// The columns in which two rows differ.
    pub(super) fn differences<'a>(&'a self, other: &'a Self, table: Table) -> Vec<&'static str> {
        let pairs = self.cells(table).zip(&other.0);
        pairs.filter(|((_, one), two)| one != two).map(|((column, _), _)| column.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_one_behind_it_but_the_last() {
        assert_eq!(Place(7, i64::MIN).next(Table::Outbox), Some(Place(8, i64::MIN)));
        assert_eq!(Place(7, 3).next(Table::Attempt), Some(Place(7, 4)));
        assert_eq!(Place(7, i64::MAX).next(Table::Attempt), Some(Place(8, i64::MIN)));
        assert_eq!(Place(i64::MAX, i64::MIN).next(Table::Outbox), None);
        assert_eq!(Place(i64::MAX, i64::MAX).next(Table::Attempt), None);
        assert!(Place::FIRST < Place(i64::MIN, 0));
    }
}
