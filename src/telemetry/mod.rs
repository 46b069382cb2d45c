//! What both walks tell about themselves: metrics, and where a trace comes from.
//!
//! # Metrics
//!
//! Every instrument stands in one table, [`INSTRUMENTS`]. Names, labels and units are public: they do not change within a
//! major version, and nothing is measured that is not in it.
//!
//! They are recorded by way of [`metrics`], a facade like `tracing`: the library names what it measures, and the application
//! says who records it. With the `metrics-exporter-prometheus` crate that is Prometheus, with an exporter for OpenTelemetry a
//! collector, and with none nothing is recorded. OpenTelemetry's own API was the other choice. It has breaking releases
//! several times a year, on which every library of an application and its exporter would have to agree; and it has no
//! recorder that a test can have for itself. Spans go the same way: `tracing`, and `tracing-opentelemetry` where a collector
//! wants them.
//!
//! Install the recorder before the layers, processors and dispatchers are built. What is measured before is not recorded, and
//! the zeros with which each source begins are measured when its layer is built.
//!
//! The program `countersign` records for itself and answers `/metrics` on `--admin-listen`.
//!
//! ```
//! // At the start, behind the installation of the recorder: what `# HELP` says.
//! countersign::telemetry::describe();
//! ```
//!
//! ## Labels
//!
//! A label is a name that an operator chose, of a source, a consumer or an endpoint, or one of a few words. Never an id, a
//! type of event, a URL, or anything else that a sender or a receiver wrote. Of each kind the first [`MAX_NAMES`] names are
//! told apart, and the rest are counted together under an empty label, so that an application with an endpoint for each of its customers
//! does not overwhelm its metrics.
//!
//! # Spans
//!
//! | span | covers | fields |
//! |---|---|---|
//! | `verify` | a request, until it is answered | `source`, `trace_id`, `parent_id` |
//! | `handle` | a verified delivery, from its key to its answer | `consumer`, `key`, `event_id`, `correlation_id`, `causation_id` |
//! | `process` | an accepted event, as a processor runs it | those of `handle`, `source`, `attempt`, `trace_id`, `parent_id` |
//! | `run` | the handler | `attempt` |
//! | `deliver` | one attempt to deliver a message, and its record | `id`, `endpoint`, `event_type`, `attempt`, `replay`, `correlation_id`, `causation_id`, `trace_id`, `parent_id`; at its end `outcome`, `status` |
//! | `lease` | the renewal of a lease | `key` or `id`, `endpoint`, `attempt` |
//!
//! `trace_id` and `parent_id` are those of a [`Traceparent`], the W3C's header: of the request on the way in, of the message
//! on the way out, where it is sent on as it is. A layer that exports spans takes the remote parent from these fields. The
//! header is not signed: who sends it may write into it what they like, and more than its form is not believed.
//!
//! No span, event, metric or label carries a payload, a secret, a signature, or the query of a URL.
#![cfg_attr(feature = "telemetry", doc = "")]
// Without the feature all of this is private, and nobody records.
#![cfg_attr(not(feature = "telemetry"), allow(dead_code, unreachable_pub))]
#![cfg_attr(feature = "telemetry", doc = include_str!("../guide/metrics.md"))]

#[cfg(feature = "admin")]
pub(crate) mod activity;
mod instruments;
#[cfg(feature = "telemetry")]
mod names;
mod record;
mod traceparent;

#[cfg(feature = "telemetry")]
pub use instruments::{INSTRUMENTS, Instrument, Kind};
#[cfg(feature = "telemetry")]
pub use names::MAX_NAMES;
#[cfg(feature = "telemetry")]
pub use record::describe;
#[cfg(feature = "telemetry")]
pub use traceparent::Traceparent;

pub(crate) use instruments::*;
#[cfg(feature = "send")]
pub(crate) use record::Level;
pub(crate) use record::{Value, count, level, observe, set};
#[cfg(not(feature = "telemetry"))]
pub(crate) use traceparent::Traceparent;
