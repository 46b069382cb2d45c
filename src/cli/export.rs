//! `inbox export` and `outbox export`: all of a table, a line each.

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
///
/// A row that cannot be read is named in the log, and passed over: the others are what somebody needs now. The end says so.
pub(crate) async fn all<K>(
    stretch: impl AsyncFn(u64, u32) -> Result<Keys<K>, StoreError>,
    fits: impl Fn(&K) -> bool,
    line: impl AsyncFn(K) -> Result<Option<Value>, StoreError>,
) -> Result<(), CliError> {
    let (mut from, mut unreadable) = (Some(0), 0_u64);
    while let Some(start) = from {
        let Keys { keys, next, .. } = stretch(start, STRETCH).await?;
        from = next;
        let meant: Vec<K> = keys.into_iter().filter(&fits).collect();
        let mut lines = stream::iter(meant).map(|key| line(key)).buffered(AT_ONCE);
        while let Some(read) = lines.next().await {
            match read {
                Ok(Some(value)) if !print_line(&value)? => return Ok(()),
                Ok(_) => {}
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
