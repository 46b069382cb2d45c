//! To whoever records metrics, and to the admin pages. Without the features `telemetry` and `admin` there is nobody, and nothing of
//! this costs anything.

use super::Instrument;
use crate::Name;

/// The value of a label.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// Of the kind that the label says: a source, a consumer or an endpoint.
    Named(&'a Name),
    /// One of a few.
    Word(&'static str),
}

/// Adds to a counter.
pub(crate) fn count(counter: Instrument, values: &[Value<'_>], by: u64) {
    #[cfg(feature = "admin")]
    super::activity::note(counter, values, by);
    #[cfg(feature = "telemetry")]
    metered::with(counter, values, |recorder, key, metadata| recorder.register_counter(key, metadata).increment(by));
    #[cfg(not(feature = "telemetry"))]
    let _ = (counter, values, by);
}

/// Notes a span of time in a histogram.
pub(crate) fn observe(histogram: Instrument, values: &[Value<'_>], span: std::time::Duration) {
    #[cfg(feature = "telemetry")]
    metered::with(histogram, values, |recorder, key, metadata| {
        recorder.register_histogram(key, metadata).record(span.as_secs_f64());
    });
    #[cfg(not(feature = "telemetry"))]
    let _ = (histogram, values, span);
}

/// Sets a gauge.
pub(crate) fn set(gauge: Instrument, values: &[Value<'_>], value: f64) {
    #[cfg(feature = "telemetry")]
    metered::with(gauge, values, |recorder, key, metadata| recorder.register_gauge(key, metadata).set(value));
    #[cfg(not(feature = "telemetry"))]
    let _ = (gauge, values, value);
}

/// Raises a gauge by one until what this returns is dropped.
#[must_use]
pub(crate) fn level(gauge: Instrument, name: &Name) -> Level {
    #[cfg(feature = "telemetry")]
    {
        let values = [Value::Named(name)];
        let gauge = metered::with(gauge, &values, |recorder, key, metadata| recorder.register_gauge(key, metadata));
        gauge.increment(1.0);
        Level(gauge)
    }
    #[cfg(not(feature = "telemetry"))]
    {
        let _ = (gauge, name);
        Level()
    }
}

/// Something that goes on.
pub(crate) struct Level(#[cfg(feature = "telemetry")] metrics::Gauge);

impl Drop for Level {
    fn drop(&mut self) {
        #[cfg(feature = "telemetry")]
        self.0.decrement(1.0);
    }
}

/// Tells the recorder that the application has installed what each instrument means: once, at the start.
#[cfg(feature = "telemetry")]
pub fn describe() {
    use metrics::Unit;

    use super::Kind;

    for Instrument { name, kind, meaning, .. } in super::INSTRUMENTS {
        let is_span = name.ends_with("_seconds");
        let unit = is_span.then_some(Unit::Seconds);
        metrics::with_recorder(|recorder| match kind {
            Kind::Counter => recorder.describe_counter((*name).into(), unit, (*meaning).into()),
            Kind::Gauge => recorder.describe_gauge((*name).into(), unit, (*meaning).into()),
            Kind::Histogram => recorder.describe_histogram((*name).into(), unit, (*meaning).into()),
        });
    }
}

#[cfg(feature = "telemetry")]
mod metered {
    use metrics::{Key, Label, Level, Metadata, Recorder};

    use super::super::names::Names;
    use super::{Instrument, Value};

    static SOURCES: Names = Names::new();
    static CONSUMERS: Names = Names::new();
    static ENDPOINTS: Names = Names::new();

    static METADATA: Metadata<'static> = Metadata::new("countersign", Level::INFO, Some("countersign"));

    pub(super) fn with<T>(
        instrument: Instrument,
        values: &[Value<'_>],
        record: impl FnOnce(&dyn Recorder, &Key, &Metadata<'_>) -> T,
    ) -> T {
        debug_assert_eq!(instrument.labels.len(), values.len(), "{}", instrument.name);
        let labels = instrument.labels.iter().zip(values).map(|(label, value)| match value {
            Value::Word(word) => Label::from_static_parts(label, word),
            Value::Named(name) => {
                let names = match *label {
                    "source" => &SOURCES,
                    "consumer" => &CONSUMERS,
                    _ => &ENDPOINTS,
                };
                Label::new(*label, names.told(name).to_owned())
            }
        });
        let key = Key::from_parts(instrument.name, labels.collect::<Vec<_>>());
        metrics::with_recorder(|recorder| record(recorder, &key, &METADATA))
    }
}
