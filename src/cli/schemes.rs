//! `countersign schemes`: every way to sign that this program knows.

use clap::Args;
use countersign::SecretFormat;
use countersign::signature::{IdOrigin, Scheme};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{OutputArgs, table};
use crate::scheme::HMAC;

/// List the schemes: who signs like this, with which headers, and what is signed
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign schemes --json")]
pub(crate) struct SchemesArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &SchemesArgs) -> Result<(), CliError> {
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
    handshake: Option<&'static str>,
    from_options: bool,
}

impl Row {
    fn of(scheme: &Scheme) -> Self {
        Self {
            name: scheme.name(),
            provider: scheme.provider(),
            headers: scheme.headers().map(ToString::to_string).collect(),
            algorithm: scheme.algorithm().as_str(),
            encoding: scheme.encoding().as_str(),
            secret: match scheme.secret_format() {
                SecretFormat::Text => "text",
                SecretFormat::Base64 { .. } => "base64",
                SecretFormat::Hex => "hex",
                _ => "other",
            },
            timestamp_signed: scheme.signs_timestamp(),
            url_signed: scheme.signs_url(),
            id: scheme.id_origin(),
            handshake: scheme.handshake(),
            from_options: scheme.name() == HMAC,
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
        })
    }
}

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
            if row.from_options { "named by --option".to_owned() } else { row.headers.join(", ") },
            row.handshake.unwrap_or("-").to_owned(),
        ]
    });
    let cells: Vec<_> = cells.collect();
    table(["SCHEME", "PROVIDER", "ALGORITHM", "ENCODING", "TIMESTAMP", "ID", "HEADERS", "HANDSHAKE"], &cells)
}
