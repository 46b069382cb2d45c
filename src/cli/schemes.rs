//! `countersign schemes`: every way to sign that this program knows.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use countersign::signature::{IdOrigin, Scheme};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{OutputArgs, table};
use crate::scheme::{HMAC, unknown};

/// List the schemes: who signs like this, with which headers, and what is signed; or tell all about one
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign schemes --json
  countersign schemes stripe")]
pub(crate) struct SchemesArgs {
    /// Scheme, by its name: prints its page
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &SchemesArgs) -> Result<(), CliError> {
    if let Some(name) = &args.name {
        let scheme = Scheme::named(name).ok_or_else(|| CliError::no(unknown(name)))?;
        return args.output.print(|| Row::of(&scheme).as_json(), || scheme.page());
    }
    let mut rows: Vec<Row> = Scheme::all().map(|scheme| Row::of(&scheme)).collect();
    // Described by its defaults; its headers are what its options say.
    let hmac = Scheme::hmac([("header", "x-signature")])?;
    rows.push(Row { headers: Vec::new(), from_options: true, ..Row::of(&hmac) });
    args.output.print(|| rows.iter().map(Row::as_json).collect(), || as_table(&rows))
}

/// What is told about one scheme.
struct Row {
    name: &'static str,
    provider: &'static str,
    headers: Vec<String>,
    algorithm: &'static str,
    encoding: &'static str,
    secret: &'static str,
    timestamp_signed: bool,
    url_signed: bool,
    id: IdOrigin,
    handshake: Option<String>,
    from_options: bool,
    signed: String,
    in_body: bool,
    window: Option<Duration>,
    patience: Option<Duration>,
    retries: Option<&'static str>,
    in_flight_status: u16,
    in_flight_wait: Duration,
    lease: Duration,
    documentation: &'static str,
}

impl Row {
    fn of(scheme: &Scheme) -> Self {
        Self {
            name: scheme.name(),
            provider: scheme.provider(),
            headers: scheme.headers().map(ToString::to_string).collect(),
            algorithm: scheme.algorithm().as_str(),
            encoding: scheme.encoding().as_str(),
            secret: scheme.secret_format().as_str(),
            timestamp_signed: scheme.signs_timestamp(),
            url_signed: scheme.signs_url(),
            id: scheme.id_origin(),
            handshake: handshakes(scheme),
            from_options: scheme.name() == HMAC,
            signed: scheme.signed_text(),
            in_body: scheme.is_in_body(),
            window: scheme.window().map(|window| window.past()),
            patience: scheme.patience(),
            retries: scheme.retries(),
            in_flight_status: scheme.in_flight_status().as_u16(),
            in_flight_wait: scheme.in_flight_wait(),
            lease: scheme.lease(),
            documentation: scheme.documentation(),
        }
    }

    fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "provider": self.provider,
            "headers": self.headers,
            "algorithm": self.algorithm,
            "encoding": self.encoding,
            "secret": self.secret,
            "timestamp_signed": self.timestamp_signed,
            "url_signed": self.url_signed,
            "id_signed": self.id.is_signed(),
            "id_origin": self.id.as_str(),
            "handshake": self.handshake,
            "from_options": self.from_options,
            "signed": self.signed,
            "signature_in_body": self.in_body,
            "window_seconds": self.window.map(|window| window.as_secs()),
            "answer_within_seconds": self.patience.map(|patience| patience.as_secs()),
            "retries": self.retries,
            "in_flight_status": self.in_flight_status,
            "in_flight_wait_millis": u64::try_from(self.in_flight_wait.as_millis()).ok(),
            "lease_seconds": self.lease.as_secs(),
            "documentation": self.documentation,
        })
    }
}

/// What the provider sends to try an endpoint, and what it wants to hear; none where it sends nothing.
fn handshakes(scheme: &Scheme) -> Option<String> {
    let texts: Vec<_> = scheme.handshakes().iter().map(|handshake| handshake.description()).collect();
    (!texts.is_empty()).then(|| texts.join("; or "))
}

/// A line for each, and below it what is too long for a column: the headers, and the handshake where there is one.
fn as_table(rows: &[Row]) -> String {
    let yes_no = |yes: bool| if yes { "signed" } else { "-" }.to_owned();
    let cells = rows.iter().map(|row| {
        [
            row.name.to_owned(),
            row.provider.to_owned(),
            row.algorithm.to_owned(),
            row.encoding.to_owned(),
            yes_no(row.timestamp_signed),
            row.id.to_string(),
        ]
    });
    let cells: Vec<_> = cells.collect();
    let text = table(["SCHEME", "PROVIDER", "ALGORITHM", "ENCODING", "TIMESTAMP", "ID"], &cells);
    let mut lines = text.lines();
    let mut folded = format!("{}\n", lines.next().unwrap_or_default());
    for (line, row) in lines.zip(rows) {
        folded.push_str(line);
        folded.push('\n');
        fold(&format!("headers: {}", row.header_names()), &mut folded);
        if let Some(handshake) = &row.handshake {
            fold(&format!("handshake: {handshake}"), &mut folded);
        }
    }
    folded
}

impl Row {
    fn header_names(&self) -> String {
        match self.headers.as_slice() {
            _ if self.from_options => "named by --option".to_owned(),
            [] => "-".to_owned(),
            // DocuSign has a header for each key.
            [first, .., last] if self.headers.len() > 8 => format!("{first} ... {last}"),
            headers => headers.join(", "),
        }
    }
}

/// Adds a text in lines that fit a terminal, set in.
fn fold(text: &str, folded: &mut String) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && INDENT.len() + line.chars().count() + 1 + word.chars().count() > WIDTH {
            // Writing to a string does not fail.
            let _ = writeln!(folded, "{INDENT}{line}");
            line = format!("  {word}");
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    let _ = writeln!(folded, "{INDENT}{line}");
}

const INDENT: &str = "    ";
/// In characters.
const WIDTH: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_a_terminal() {
        let rows: Vec<Row> = Scheme::all().map(|scheme| Row::of(&scheme)).collect();
        let table = as_table(&rows);
        for line in table.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for row in &rows {
            let names: Vec<_> = table.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
            assert!(names.contains(&row.name), "{}", row.name);
            let first = row.headers.first();
            assert!(first.is_none_or(|header| names.contains(&header.as_str())), "{}", row.name);
        }
    }
}
