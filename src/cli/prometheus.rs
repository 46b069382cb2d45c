//! Metrics in the text form that Prometheus reads: <https://prometheus.io/docs/instrumenting/exposition_formats/>.
//!
//! It records what the library measures and nothing else. The exporters there are for the facade bring summaries, their own
//! server, and dozens of dependencies; what is needed here is a table of numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, Gauge, GaugeFn as _, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// All that has been measured in this process. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prometheus(Arc<Mutex<BTreeMap<String, Family>>>);

/// The time series of one name.
#[derive(Debug, Default)]
struct Family {
    help: String,
    /// By their labels, as they are written.
    series: BTreeMap<String, Series>,
}

#[derive(Clone, Debug)]
enum Series {
    Counter(Arc<AtomicU64>),
    /// The bits of a floating-point number.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Spans>),
}

/// The upper bounds of the buckets, in seconds: from a handler that only writes a row to a retry half a day later.
const BOUNDS: [f64; 17] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 43_200.0];

#[derive(Debug, Default)]
struct Spans {
    /// How many were within each bound and over the one before it; the last one is over all of them.
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// The bits of a floating-point number.
    sum: AtomicU64,
}

impl Prometheus {
    /// Begins to record: once in a process. Who installed one first keeps it, and this one stays empty.
    pub(crate) fn install() -> Self {
        let prometheus = Self::default();
        if metrics::set_global_recorder(prometheus.clone()).is_err() {
            tracing::warn!("metrics are recorded by somebody else already");
        }
        countersign::telemetry::describe();
        prometheus
    }

    /// All of it as text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for (name, Family { help, series }) in &*self.families() {
            let Some(first) = series.values().next() else { continue };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {}", escaped(help, false), first.kind());
            for (labels, series) in series {
                series.render(name, labels, &mut text);
            }
        }
        text
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        self.families().entry(name.as_str().to_owned()).or_default().help = help.into_owned();
    }

    /// The series of this key, which is made where there is none.
    fn series(&self, key: &Key, new: fn() -> Series) -> Series {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}=\"{}\"", label.key(), escaped(label.value(), true))).collect();
        let mut families = self.families();
        // Most of them are there.
        if !families.contains_key(key.name()) {
            families.insert(key.name().to_owned(), Family::default());
        }
        let Some(family) = families.get_mut(key.name()) else { return new() };
        family.series.entry(labels.join(",")).or_insert_with(new).clone()
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for Prometheus {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.series(key, || Series::Counter(Arc::default())) {
            Series::Counter(counter) => Counter::from_arc(counter),
            Series::Gauge(_) | Series::Histogram(_) => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.series(key, || Series::Gauge(Arc::default())) {
            Series::Gauge(gauge) => Gauge::from_arc(gauge),
            Series::Counter(_) | Series::Histogram(_) => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.series(key, || Series::Histogram(Arc::default())) {
            Series::Histogram(spans) => Histogram::from_arc(spans),
            Series::Counter(_) | Series::Gauge(_) => Histogram::noop(),
        }
    }
}

impl HistogramFn for Spans {
    fn record(&self, seconds: f64) {
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.increment(seconds);
    }
}

impl Series {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    fn render(&self, name: &str, labels: &str, text: &mut String) {
        let number = |bits: &AtomicU64| f64::from_bits(bits.load(Ordering::Relaxed));
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        // Writing to a String cannot fail.
        let _ = match self {
            Self::Counter(count) => writeln!(text, "{name}{braced} {}", count.load(Ordering::Relaxed)),
            Self::Gauge(bits) => writeln!(text, "{name}{braced} {}", number(bits)),
            Self::Histogram(spans) => {
                let mut so_far = 0;
                let comma = if labels.is_empty() { "" } else { "," };
                let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
                for (bound, count) in bounds.zip(&spans.counts) {
                    so_far += count.load(Ordering::Relaxed);
                    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {so_far}");
                }
                writeln!(text, "{name}_sum{braced} {}\n{name}_count{braced} {so_far}", number(&spans.sum))
            }
        };
    }
}

/// Names are what operators made them.
fn escaped(text: &str, is_label: bool) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n");
    if is_label { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_written_as_prometheus_reads_it() {
        let prometheus = Prometheus::default();
        metrics::with_local_recorder(&prometheus, || {
            metrics::describe_counter!("met_total", "What was met.\nAnd a \\.");
            metrics::counter!("met_total", "by" => "a\"b\\c\nd").increment(2);
            metrics::counter!("met_total", "by" => "b").increment(0);
            let gauge = metrics::gauge!("level");
            gauge.set(2.5);
            gauge.decrement(1.0);
            metrics::histogram!("took_seconds", "by" => "b").record(0.02);
            metrics::histogram!("took_seconds", "by" => "b").record(90_000.0);
            // One name is one kind: a mistake elsewhere does not end the process.
            metrics::gauge!("met_total", "by" => "b").set(7.0);
        });
        let text = prometheus.render();
        for line in [
            r"# HELP met_total What was met.\nAnd a \\.",
            "# TYPE met_total counter",
            r#"met_total{by="a\"b\\c\nd"} 2"#,
            r#"met_total{by="b"} 0"#,
            "level 1.5",
            r#"took_seconds_bucket{by="b",le="0.01"} 0"#,
            r#"took_seconds_bucket{by="b",le="0.025"} 1"#,
            r#"took_seconds_bucket{by="b",le="43200"} 1"#,
            r#"took_seconds_bucket{by="b",le="+Inf"} 2"#,
            r#"took_seconds_sum{by="b"} 90000.02"#,
            r#"took_seconds_count{by="b"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
