//! A recorder that a test has for itself, on its own thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// What was measured: counters and gauges by their value, histograms by how often something was noted.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>);

struct Cell {
    name: String,
    all: Recorded,
}

impl Recorded {
    /// One time series, as `name{label=value,…}`.
    pub(super) fn of(&self, name: &str) -> f64 {
        self.0.lock().expect("no test panics in here").get(name).copied().unwrap_or_default()
    }

    /// All series of one name that have all of these labels, added up.
    pub(super) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let all = self.0.lock().expect("no test panics in here");
        let fits = |key: &&String| {
            let (found, rest) = key.split_once('{').expect("labels");
            let found_labels: Vec<_> = rest.trim_end_matches('}').split(',').collect();
            found == name && labels.iter().all(|label| found_labels.contains(label))
        };
        all.keys().filter(fits).map(|key| all[key]).sum()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.lock().expect("no test panics in here").keys().cloned().collect()
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        self.0.lock().expect("no test panics in here").entry(name.clone()).or_default();
        Arc::new(Cell { name, all: self.clone() })
    }
}

impl Cell {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut all = self.all.0.lock().expect("no test panics in here");
        let value = all.entry(self.name.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.change(|so_far| so_far + f64::from(u32::try_from(value).expect("small")));
    }

    fn absolute(&self, _: u64) {
        panic!("counters only grow");
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.change(|so_far| so_far + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|so_far| so_far - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, _: f64) {
        self.change(|so_far| so_far + 1.0);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}
