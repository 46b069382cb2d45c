//! What an examination found, one thing after the other, and how it ends.

use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{OutputArgs, Printable, table};

/// What was looked at, and how it is.
#[derive(Debug)]
pub(crate) struct Finding {
    /// What kind of thing: `store`, `schema`, `clock`, `secrets`, `endpoint`, `backlog`.
    check: &'static str,
    /// Which one.
    subject: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Good(String),
    /// It works, and somebody should know.
    Warned(String),
    Failed(CliError),
    /// What it needs was not there.
    Skipped(&'static str),
}

impl Finding {
    pub(crate) fn good(check: &'static str, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check, subject: subject.into(), state: State::Good(detail.into()) }
    }

    pub(crate) fn warned(check: &'static str, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check, subject: subject.into(), state: State::Warned(detail.into()) }
    }

    pub(crate) fn failed(check: &'static str, subject: impl Into<String>, error: impl Into<CliError>) -> Self {
        Self { check, subject: subject.into(), state: State::Failed(error.into()) }
    }

    pub(crate) fn skipped(check: &'static str, why: &'static str) -> Self {
        Self { check, subject: String::new(), state: State::Skipped(why) }
    }

    fn status(&self) -> &'static str {
        match self.state {
            State::Good(_) => "ok",
            State::Warned(_) => "warning",
            State::Failed(_) => "failed",
            State::Skipped(_) => "skipped",
        }
    }

    fn detail(&self) -> String {
        match &self.state {
            State::Good(text) | State::Warned(text) => text.clone(),
            State::Failed(error) => error.to_string(),
            State::Skipped(why) => (*why).to_owned(),
        }
    }

    fn as_json(&self) -> Value {
        let subject = Some(&self.subject).filter(|subject| !subject.is_empty());
        json!({ "check": self.check, "subject": subject, "status": self.status(), "detail": self.detail() })
    }
}

/// Prints the findings. Fails where one of them did, as the gravest: what could not be reached before what is configured
/// wrongly, and that before an answer that is no.
pub(crate) fn report(findings: Vec<Finding>, output: OutputArgs) -> Result<(), CliError> {
    let failed = findings.iter().filter(|finding| matches!(finding.state, State::Failed(_))).count();
    let json = || json!({ "ok": failed == 0, "checks": findings.iter().map(Finding::as_json).collect::<Value>() });
    let text = || {
        let cells = |finding: &Finding| {
            let shown = |text: &str| Printable(text).to_string();
            [finding.status().to_owned(), finding.check.to_owned(), shown(&finding.subject), shown(&finding.detail())]
        };
        table(["STATUS", "CHECK", "SUBJECT", "DETAIL"], &findings.iter().map(cells).collect::<Vec<_>>())
    };
    output.print(json, text)?;
    let total = findings.len();
    let errors = findings.into_iter().filter_map(|finding| match finding.state {
        State::Failed(error) => Some((finding.check, finding.subject, error)),
        State::Good(_) | State::Warned(_) | State::Skipped(_) => None,
    });
    let gravity = |error: &CliError| match error {
        CliError::Unreachable(_) => 0,
        CliError::Usage(_) => 1,
        CliError::No(_) => 2,
    };
    let Some((check, subject, gravest)) = errors.min_by_key(|(_, _, error)| gravity(error)) else { return Ok(()) };
    let text = |error: String| format!("{failed} of {total} checks failed, `{check}` {subject} among them: {error}");
    Err(match gravest {
        CliError::Unreachable(error) => CliError::Unreachable(text(error)),
        CliError::Usage(error) => CliError::Usage(text(error)),
        CliError::No(error) => CliError::No(text(error)),
    })
}
