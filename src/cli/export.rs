//! `inbox export`, `outbox export` and what else goes through all of a table.

use countersign::store::{Keys, StoreError};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::error::CliError;
use crate::output::print_line;

/// How many keys are read at a time.
const STRETCH: u32 = 500;
/// How many rows are read beside each other: about as many as a pool has connections.
const AT_ONCE: usize = 8;

/// Prints every row that fits, in order. `stretch` reads keys, `fits` says which of them may be meant, and `line` reads one row
/// and makes its line; none where it is not meant, or is gone.
pub(crate) async fn all<K>(
    stretch: impl AsyncFn(u64, u32) -> Result<Keys<K>, StoreError>,
    fits: impl Fn(&K) -> bool,
    line: impl AsyncFn(K) -> Result<Option<Value>, StoreError>,
) -> Result<(), CliError> {
    each(stretch, fits, line, |value| print_line(&value)).await
}

/// Visits every row that fits, in order, until a visit says that it is enough: as [`all`] does, for what is not printed line by
/// line.
///
/// A row that cannot be read is named in the log, and passed over: the others are what somebody needs now. The end says so.
pub(crate) async fn each<K, T>(
    stretch: impl AsyncFn(u64, u32) -> Result<Keys<K>, StoreError>,
    fits: impl Fn(&K) -> bool,
    read: impl AsyncFn(K) -> Result<Option<T>, StoreError>,
    mut visit: impl FnMut(T) -> Result<bool, CliError>,
) -> Result<(), CliError> {
    let (mut from, mut unreadable) = (Some(0), 0_u64);
    while let Some(start) = from {
        let Keys { keys, next, .. } = stretch(start, STRETCH).await?;
        from = next;
        let meant: Vec<K> = keys.into_iter().filter(&fits).collect();
        let mut rows = stream::iter(meant).map(|key| read(key)).buffered(AT_ONCE);
        while let Some(row) = rows.next().await {
            match row {
                Ok(Some(row)) => {
                    if !visit(row)? {
                        return Ok(());
                    }
                }
                Ok(None) => {}
                Err(error @ StoreError::Corrupt(_)) => {
                    tracing::error!("a row is passed over: {error}");
                    unreadable += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    if unreadable > 0 {
        return Err(CliError::no(format!("{unreadable} rows cannot be read and are left out; the log names them")));
    }
    Ok(())
}
