//! `--body`: the bytes that were signed, or are to be.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::error::CliError;

/// Where a body comes from.
#[derive(Args, Debug)]
pub(crate) struct BodyArgs {
    /// File that holds the body, byte for byte; `-` for standard input
    #[arg(long, value_name = "PATH")]
    body: PathBuf,
}

impl BodyArgs {
    /// All of it. No byte is added, dropped or changed: the signature covers each one.
    pub(crate) fn read(&self) -> Result<Vec<u8>, CliError> {
        if self.body == Path::new("-") {
            let mut body = Vec::new();
            return match io::stdin().lock().read_to_end(&mut body) {
                Ok(_) => Ok(body),
                Err(error) => Err(CliError::unreachable(format!("standard input cannot be read: {error}"))),
            };
        }
        fs::read(&self.body).map_err(|error| {
            let path = self.body.display();
            CliError::unreachable(format!("--body: the file `{path}` cannot be read: {error}; check its path and mode"))
        })
    }
}
