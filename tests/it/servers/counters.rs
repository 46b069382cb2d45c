//! What is counted equals what the stores on servers say, too.

use std::sync::Arc;

use super::{mysql, postgres};
use crate::dispatch::Sender;
use crate::telemetry::metrics::{
    the_receivers_counters_equal_what_the_inbox_says, the_senders_counters_equal_what_the_outbox_says,
};

#[tokio::test]
async fn after_a_mixed_run_the_receivers_counters_equal_what_postgresql_says() {
    let Some(database) = postgres::Database::create().await else { return };
    the_receivers_counters_equal_what_the_inbox_says(Arc::new(database.open().await)).await;
}

#[tokio::test]
async fn after_a_mixed_run_the_receivers_counters_equal_what_mysql_says() {
    let Some(database) = mysql::Database::create().await else { return };
    the_receivers_counters_equal_what_the_inbox_says(Arc::new(database.open().await)).await;
}

#[tokio::test]
async fn c154_after_a_mixed_run_the_senders_counters_equal_what_postgresql_says() {
    let Some(database) = postgres::Database::create().await else { return };
    the_senders_counters_equal_what_the_outbox_says(Sender::new(Arc::new(database.open().await))).await;
}

#[tokio::test]
async fn c154_after_a_mixed_run_the_senders_counters_equal_what_mysql_says() {
    let Some(database) = mysql::Database::create().await else { return };
    the_senders_counters_equal_what_the_outbox_says(Sender::new(Arc::new(database.open().await))).await;
}
