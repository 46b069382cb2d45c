//! What is noted of an attempt: enough for a person who looks why a message did not arrive.

use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderMap, StatusCode};
use tracing::debug;

use super::{Answer, Ending, Failure};
use crate::store::AttemptReport;

/// What is noted of an outcome.
pub(super) fn report(outcome: Result<Answer, Failure>, took: Duration, answer_limit: usize) -> AttemptReport {
    let mut report = AttemptReport { took, ..AttemptReport::default() };
    match outcome {
        Ok(answer) => {
            if !answer.status.is_success() {
                report.error = Some(answer.to_string());
                report.kind = Some(kind_of(answer.status).to_owned());
            }
            report.status = Some(answer.status);
            report.body = answer.body.slice(..answer.body.len().min(answer_limit));
            report.headers = kept_headers(&answer.headers);
            if answer.ending == Ending::Failed && report.error.is_none() {
                debug!("the answer's body broke off after its status had said enough");
            }
        }
        Err(failure) => {
            report.kind = Some(failure.kind().to_owned());
            report.error = Some(failure.to_string());
        }
    }
    report
}

fn kind_of(status: StatusCode) -> &'static str {
    if status.is_redirection() { "redirect" } else { "status" }
}

/// As many of an answer's headers as a person looks at. A cookie is for nobody.
fn kept_headers(headers: &HeaderMap) -> HeaderMap {
    const MOST: usize = 32;
    const MOST_BYTES: usize = 4 * 1024;
    let mut bytes = 0;
    let kept = headers.iter().filter(|(name, _)| **name != SET_COOKIE).take(MOST).take_while(|(name, value)| {
        bytes += name.as_str().len() + value.len();
        bytes <= MOST_BYTES
    });
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}
