//! Time on the clock, and on the processors: of this process, of threads, and of a database's processes.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

/// Since a moment.
pub struct Clock {
    began: Instant,
    own: Duration,
    database: Duration,
    parent: Option<u32>,
}

impl Clock {
    pub fn start(parent: Option<u32>) -> Self {
        Self { began: Instant::now(), own: of_process(), database: of_children(parent), parent }
    }

    pub fn report(&self, what: &str, count: usize) {
        self.report_beside(what, count, Duration::ZERO);
    }

    /// `beside`: what a thread of this process took that is told apart.
    pub fn report_beside(&self, what: &str, count: usize, beside: Duration) {
        let seconds = self.began.elapsed().as_secs_f64();
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        let own = (of_process() - self.own).saturating_sub(beside);
        let database = of_children(self.parent).saturating_sub(self.database);
        let tenths = |micros: f64| (micros * 10.0).round() / 10.0;
        let line = json!({
            "bench": "dispatch",
            "what": what,
            "count": count,
            "per_second": (count as f64 / seconds).round(),
            "processor_micros": { "here": tenths(each(own)), "sink": tenths(each(beside)), "database": tenths(each(database)) },
        });
        println!("{line}");
    }
}

/// Kibibytes of memory.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

pub fn of_thread(id: u32) -> Duration {
    time_of(&format!("/proc/self/task/{id}/stat")).map_or(Duration::ZERO, |(_, time)| time)
}

fn of_process() -> Duration {
    time_of("/proc/self/stat").map_or(Duration::ZERO, |(_, time)| time)
}

/// Of those that run.
fn of_children(parent: Option<u32>) -> Duration {
    let Some(parent) = parent else { return Duration::ZERO };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|entry| time_of(&format!("{}/stat", entry.path().display())));
    stats.filter(|(of, _)| *of == parent).map(|(_, time)| time).sum()
}

/// Parent and processor time.
fn time_of(path: &str) -> Option<(u32, Duration)> {
    // Of a hundredth of a second each, on every Linux.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(path).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u32>().ok();
    Some((number(1)?, TICK * (number(11)? + number(12)?)))
}
