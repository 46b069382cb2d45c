//! The guides: how to use it, how to run it, and what it does not do.
//!
//! | page | for |
//! |---|---|
//! | [`receiving`] | whoever takes in webhooks: modes, keys, answers, what a handler may do |
//! | [`exactly_once`] | whoever books money: what happens once, what may happen twice, and how to tell |
//! | `send::guide` (feature `send`) | whoever sends webhooks |
//! | `signature::providers` | every scheme, what it signs, and what its id is worth |
//! | [`operations`] | whoever is woken at night: each metric, each state, and what to type |
//! | `telemetry` (feature `telemetry`) | every metric and every span |
//! | [`threats`] | whoever has to trust it: each threat, and the test that holds it off |
//! | [`performance`] | whoever plans: figures beside those of others, and where a store ends |
//! | [`schema`] | whoever reads the tables by SQL |
//! | [`comparison`] | whoever chooses: alternatives, and when not to use this |
//!
//! What the pages say is held by tests: their code runs, the commands in them exist with the flags that are shown, the tests that
//! they name are there, and the columns are those of the database.

#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}
#[doc = include_str!("guide/exactly_once.md")]
pub mod exactly_once {}
#[doc = include_str!("guide/operations.md")]
pub mod operations {}
#[doc = include_str!("guide/performance.md")]
pub mod performance {}
#[doc = include_str!("guide/receiving.md")]
pub mod receiving {}
#[doc = include_str!("guide/schema.md")]
pub mod schema {}
#[doc = include_str!("guide/threats.md")]
pub mod threats {}
