//! Rows as what stands in the history of a saga. What somebody else wrote there is refused by name, and never panics.

use super::super::row::{Cells, moment, number, optional, text, wrong};
use crate::store::{SagaEntry, SagaKey, SagaStep, StepAnswer, StoreError};
use crate::{EventId, Name, Timestamp};

pub(super) fn entry(row: &impl Cells) -> Result<SagaEntry, StoreError> {
    Ok(SagaEntry {
        key: key(row)?,
        version: number(row, "version")?,
        step: optional_name(row, "step")?,
        created: Timestamp::from_micros(number(row, "created")?),
        moved: Timestamp::from_micros(number(row, "moved")?),
        ended: moment(row, "ended")?,
        body: text(row, "body")?,
    })
}

/// For a list. One row that cannot be read must not hide all others from whoever looks for what is stuck.
pub(super) fn readable(rows: &[impl Cells]) -> Vec<SagaEntry> {
    let readable = |row| entry(row).inspect_err(|error| tracing::error!(%error, "a saga is left out of a list")).ok();
    rows.iter().filter_map(readable).collect()
}

pub(super) fn key(row: &impl Cells) -> Result<SagaKey, StoreError> {
    Ok(SagaKey { saga: name(row, "saga")?, instance: name(row, "instance")? })
}

pub(super) fn saga(row: &impl Cells) -> Result<Name, StoreError> {
    name(row, "saga")
}

pub(super) fn step(row: &impl Cells) -> Result<SagaStep, StoreError> {
    Ok(SagaStep {
        number: number(row, "number")?,
        at: Timestamp::from_micros(number(row, "at")?),
        event_id: EventId::new(&text(row, "event_id")?).map_err(|_| wrong("event_id"))?,
        event_type: name(row, "event_type")?,
        answer: StepAnswer::from_name(&text(row, "answer")?).ok_or_else(|| wrong("answer"))?,
        from: optional_name(row, "from_step")?,
        to: optional_name(row, "to_step")?,
        reason: optional(row.text("reason"))?,
        sent: serde_json::from_str(&text(row, "sent")?).map_err(|_| wrong("sent"))?,
    })
}

fn name(row: &impl Cells, column: &'static str) -> Result<Name, StoreError> {
    Name::new(&text(row, column)?).map_err(|_| wrong(column))
}

fn optional_name(row: &impl Cells, column: &'static str) -> Result<Option<Name>, StoreError> {
    optional(row.text(column))?.map(|name| Name::new(&name).map_err(|_| wrong(column))).transpose()
}
