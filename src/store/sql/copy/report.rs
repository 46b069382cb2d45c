//! What a copy found, did, and could not do.

use std::collections::BTreeMap;

use thiserror::Error;

use super::end::{AnyEnd, Running};
use super::row::Row;
use super::table::Table;
use super::walk::Meeting;
use crate::store::StoreError;

/// Two stores, held against each other row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// What is in each table, in the order of [`Table::ALL`].
    pub tables: Vec<TableSurvey>,
    /// What the source was running then.
    pub running: Running,
    /// The first rows that stand in the way, by name, and why: ten at most.
    pub obstacles: Vec<String>,
}

/// The rows of a table at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSurvey {
    /// Which table.
    pub table: Table,
    /// How many the source has.
    pub rows: u64,
    /// The same by their states, where the table has states.
    pub states: BTreeMap<String, u64>,
    /// How many of them the target lacks.
    pub missing: u64,
    /// How many stand in the target as they are.
    pub equal: u64,
    /// How many stand in the target, and differ.
    pub differing: u64,
    /// How many only the target has.
    pub foreign: u64,
    /// How many the target's database cannot hold.
    pub unfit: u64,
}

/// What a copy did. All rows of both ends are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// How many rows it added.
    pub added: u64,
    /// What both ends hold now.
    pub survey: Survey,
}

/// Why a copy was not made, or not finished. It can be begun again: what it added stays, and is found to be equal.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source could not be read.
    #[error("the source: {0}")]
    Source(#[source] StoreError),
    /// The target could not be read or written.
    #[error("the target: {0}")]
    Target(#[source] StoreError),
    /// Something is being run. Nothing was written.
    #[error(
        "the source is in use: {} events and {} messages are being run. Stop all that uses it; what was killed is free when its \
         lease has ended. Then run this again",
        .0.events, .0.messages
    )]
    Running(Running),
    /// The source holds so many sagas, which a copy does not carry. Nothing was written.
    #[error(
        "the source holds {0} sagas, which are not copied yet; nothing was written. Let them end, and purge them (`purge_sagas`)"
    )]
    Sagas(u64),
    /// The target holds rows that the source does not have, or has in another form. Nothing was written.
    #[error(
        "the target holds {} rows that the source does not have, and {} that differ; nothing was written. Name an empty \
         database, or the one that an earlier run was filling and nothing else has used. {}",
        .0.foreign(), .0.differing(), .0.told()
    )]
    Unlike(Box<Survey>),
    /// The target's database cannot hold some rows. Nothing was written.
    #[error(
        "the target cannot hold {} rows as they are; nothing was written. Mend them in the source, or choose another \
         kind of database. {}",
        .0.unfit(), .0.told()
    )]
    Unfit(Box<Survey>),
    /// The target does not take a row.
    #[error("the target does not take {row}: {why}. Mend it in the source, and run this again")]
    Refused {
        /// Which one.
        row: String,
        /// What the database says.
        why: String,
    },
    /// The ends are not the same after all: somebody wrote to one of them meanwhile.
    #[error(
        "somebody wrote meanwhile: {} rows of the source are missing in the target, {} differ, and {} only the target has. Stop \
         all that uses either; empty the target, and run this again. {}",
        .0.missing(), .0.differing(), .0.foreign(), .0.told()
    )]
    Changed(Box<Survey>),
}

impl Survey {
    /// How many rows the source has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// How many of them the target lacks.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.tables.iter().map(|table| table.missing).sum()
    }

    /// How many of them stand in the target as they are.
    #[must_use]
    pub fn equal(&self) -> u64 {
        self.tables.iter().map(|table| table.equal).sum()
    }

    /// How many of them stand in the target, and differ.
    #[must_use]
    pub fn differing(&self) -> u64 {
        self.tables.iter().map(|table| table.differing).sum()
    }

    /// How many rows only the target has.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.tables.iter().map(|table| table.foreign).sum()
    }

    /// How many rows the target's database cannot hold.
    #[must_use]
    pub fn unfit(&self) -> u64 {
        self.tables.iter().map(|table| table.unfit).sum()
    }

    /// The first obstacles, for people.
    fn told(&self) -> String {
        self.obstacles.iter().take(3).map(|obstacle| format!("{obstacle}.")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn note(&mut self, counts: &mut TableSurvey, meeting: &Meeting, target: Option<&AnyEnd>) {
        let table = counts.table;
        match meeting {
            Meeting::Missing(row) => {
                counts.missing += 1;
                let misfit = target.and_then(|target| {
                    row.cells(table).find_map(|(column, cell)| Some((column, target.misfit(column, cell)?)))
                });
                if let Some((column, why)) = misfit {
                    counts.unfit += 1;
                    self.obstruct(row, table, &format!("`{}` {why}", column.name));
                }
            }
            Meeting::Equal(_) => counts.equal += 1,
            Meeting::Differing { row, columns } => {
                counts.differing += 1;
                self.obstruct(row, table, &format!("it differs in `{}`", columns.join("`, `")));
            }
            Meeting::Foreign(row) => {
                counts.foreign += 1;
                self.obstruct(row, table, "only the target has it");
            }
        }
        let (Meeting::Missing(row) | Meeting::Equal(row) | Meeting::Differing { row, .. }) = meeting else { return };
        counts.rows += 1;
        if let Some(state) = row.state(table) {
            *counts.states.entry(state).or_default() += 1;
        }
    }

    fn obstruct(&mut self, row: &Row, table: Table, why: &str) {
        const MOST: usize = 10;
        if self.obstacles.len() < MOST {
            self.obstacles.push(format!("{}: {why}", row.name(table)));
        }
    }
}

impl TableSurvey {
    pub(super) const fn of(table: Table) -> Self {
        let states = BTreeMap::new();
        Self { table, rows: 0, states, missing: 0, equal: 0, differing: 0, foreign: 0, unfit: 0 }
    }
}
