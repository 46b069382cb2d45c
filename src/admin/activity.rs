//! What this process has been doing: the plots of the overview, and the same as JSON.

use serde_json::{Value, json};

use crate::Timestamp;
use crate::telemetry::activity::{self, Activity, STEP_SECONDS, STEPS, Step};

/// How one thing is called, and its kinds, from the bottom of a bar to its top.
struct Words {
    activity: Activity,
    title: &'static str,
    /// As the JSON calls it.
    field: &'static str,
    kinds: [Kind; activity::KINDS],
}

/// One kind, by how good it is.
struct Kind {
    name: &'static str,
    field: &'static str,
    class: &'static str,
}

const fn good(name: &'static str, field: &'static str) -> Kind {
    Kind { name, field, class: "good" }
}

const fn even(name: &'static str, field: &'static str) -> Kind {
    Kind { name, field, class: "even" }
}

const fn poor(name: &'static str, field: &'static str) -> Kind {
    Kind { name, field, class: "poor" }
}

const PLOTS: [Words; 3] = [
    Words {
        activity: Activity::Requests,
        title: "Requests",
        field: "requests",
        kinds: [good("new events", "new"), even("repeats", "repeats"), poor("turned away", "turned_away")],
    },
    Words {
        activity: Activity::Runs,
        title: "Runs of handlers",
        field: "runs",
        kinds: [good("succeeded", "succeeded"), even("failed", "failed"), poor("given up", "given_up")],
    },
    Words {
        activity: Activity::Attempts,
        title: "Attempts to deliver",
        field: "attempts",
        kinds: [good("delivered", "delivered"), even("failed", "failed"), poor("given up", "given_up")],
    },
];

/// One plot, ready to be drawn: a bar for each step in which something was counted.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) bars: Vec<Bar>,
    pub(super) rows: Vec<Row>,
    /// The most in one step.
    pub(super) most: u64,
    pub(super) from: String,
    pub(super) to: String,
}

/// One step.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) words: String,
    pub(super) x: usize,
    pub(super) parts: Vec<Part>,
}

/// So much of one kind.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) class: &'static str,
    pub(super) y: f64,
    pub(super) height: f64,
}

/// One kind in figures.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) per_second: String,
    pub(super) hour: u64,
    pub(super) all: u64,
}

/// In units of the drawing.
pub(super) const WIDTH: usize = STEPS * STEP_WIDTH;
pub(super) const HEIGHT: f64 = 100.0;
const STEP_WIDTH: usize = 10;
pub(super) const BAR_WIDTH: usize = STEP_WIDTH - 1;

/// What was only seldom there is to be seen all the same.
const LOWEST: f64 = 1.5;

/// The plots of what this process does; none of what it does not.
pub(super) fn plots(now: Timestamp) -> Vec<Plot> {
    PLOTS.iter().filter_map(|words| plot(words, &activity::lately(words.activity, now), now)).collect()
}

/// Since when they count.
pub(super) fn since() -> Timestamp {
    activity::began()
}

/// The same for programs.
pub(super) fn json(now: Timestamp) -> Value {
    let steps = |words: &Words| -> Value {
        let step = |step: &Step| {
            let mut counts = json!({ "begins": step.begins });
            for (kind, count) in words.kinds.iter().zip(step.kinds) {
                counts[kind.field] = count.into();
            }
            counts
        };
        activity::lately(words.activity, now).iter().filter(|step| step.sum() > 0).map(step).collect()
    };
    let mut all = json!({ "since": activity::began(), "step_seconds": STEP_SECONDS });
    for words in &PLOTS {
        all[words.field] = steps(words);
    }
    all
}

fn plot(words: &Words, steps: &[Step], now: Timestamp) -> Option<Plot> {
    let most = steps.iter().map(Step::sum).max().filter(|most| *most > 0)?;
    let bars = steps.iter().enumerate().filter(|(_, step)| step.sum() > 0);
    let bar = |(at, step): (usize, &Step)| Bar {
        words: in_words(words, step),
        x: at * STEP_WIDTH,
        parts: parts(words, step, most),
    };
    Some(Plot {
        title: words.title,
        bars: bars.map(bar).collect(),
        rows: rows(words, steps, now),
        most,
        from: steps.first().map(|step| hour_and_minute(step.begins)).unwrap_or_default(),
        to: hour_and_minute(now),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a drawing is not exact")]
fn parts(words: &Words, step: &Step, most: u64) -> Vec<Part> {
    let mut top = HEIGHT;
    let kinds = step.kinds.into_iter().zip(&words.kinds).filter(|(count, _)| *count > 0);
    let part = |(count, kind): (u64, &Kind)| {
        let height = (count as f64 / most as f64 * HEIGHT).max(LOWEST).min(top);
        top -= height;
        Part { class: kind.class, y: top, height }
    };
    kinds.map(part).collect()
}

fn in_words(words: &Words, step: &Step) -> String {
    let counts = words.kinds.iter().zip(step.kinds).map(|(kind, count)| format!("{count} {}", kind.name));
    format!("{}, five minutes: {}", hour_and_minute(step.begins), counts.collect::<Vec<_>>().join(", "))
}

fn rows(words: &Words, steps: &[Step], now: Timestamp) -> Vec<Row> {
    const AN_HOUR: usize = (3_600 / STEP_SECONDS) as usize;
    let last =
        |count: usize, kind: usize| steps.iter().rev().take(count).filter_map(|step| step.kinds.get(kind)).sum::<u64>();
    let row = |(at, kind): (usize, &Kind)| Row {
        name: kind.name,
        class: kind.class,
        per_second: rate(last(2, at), steps, now),
        hour: last(AN_HOUR, at),
        all: last(STEPS, at),
    };
    words.kinds.iter().enumerate().map(row).collect()
}

/// Over the present step and the one before it: the present one alone may have only just begun.
#[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
fn rate(count: u64, steps: &[Step], now: Timestamp) -> String {
    let begins = steps.iter().rev().nth(1).map_or(now, |step| step.begins.max(activity::began()));
    let micros = now.as_micros().saturating_sub(begins.as_micros()).max(1_000_000);
    format!("{:.2}", count as f64 * 1e6 / micros as f64)
}

/// In UTC.
fn hour_and_minute(moment: Timestamp) -> String {
    let minutes = moment.as_micros().div_euclid(60_000_000).rem_euclid(24 * 60);
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(kinds: &[[u64; 3]]) -> (Vec<Step>, Timestamp) {
        let begin = 1_700_000_000 / 300 * 300;
        let at =
            |at: usize| Timestamp::from_unix_seconds(begin + 300 * i64::try_from(at).expect("small")).expect("a time");
        let steps = kinds.iter().enumerate().map(|(number, kinds)| Step { begins: at(number), kinds: *kinds });
        (steps.collect(), at(kinds.len()))
    }

    #[test]
    fn what_never_happened_has_no_plot() {
        let (steps, now) = steps(&[[0; 3]; STEPS]);
        assert!(plot(&PLOTS[0], &steps, now).is_none());
    }

    #[test]
    fn bars_stand_on_the_ground_none_is_too_high_and_none_too_low_to_be_seen() {
        let (steps, now) = steps(&[[999, 0, 1], [0, 0, 0], [1, 0, 0], [u64::MAX / 4, 1, 1]]);
        let plot = plot(&PLOTS[0], &steps, now).expect("a plot");
        assert_eq!(plot.bars.iter().map(|bar| bar.x).collect::<Vec<_>>(), [0, 20, 30]);
        for bar in &plot.bars {
            let mut ground = HEIGHT;
            for part in &bar.parts {
                assert!((part.y + part.height - ground).abs() < 1e-9 && part.y >= 0.0, "{bar:?}");
                ground = part.y;
            }
        }
        assert!(plot.bars[1].parts[0].height >= LOWEST);
        assert_eq!(plot.bars[0].words, "22:10, five minutes: 999 new events, 0 repeats, 1 turned away");
    }

    #[test]
    fn figures_are_of_the_last_minutes_the_last_hour_and_all() {
        let mut kinds = [[1, 0, 0]; STEPS];
        kinds[STEPS - 1] = [300, 0, 0];
        let (steps, now) = steps(&kinds);
        let rows = rows(&PLOTS[1], &steps, now);
        let row = &rows[0];
        assert_eq!((row.hour, row.all), (311, 371));
    }
}
