//! What commands print: text for people or one JSON document, on stdout.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

use clap::Args;
use serde_json::Value;

use crate::error::CliError;

/// How a command prints its answer.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArgs {
    /// Print one JSON document instead of text for people
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    /// Prints the answer in the form that was asked for.
    pub(crate) fn print(self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let mut answer = if self.json { json().to_string() } else { text() };
        // A list of nothing is no line.
        if !answer.is_empty() && !answer.ends_with('\n') {
            answer.push('\n');
        }
        write(answer.as_bytes())
    }
}

/// Text that came from elsewhere, made safe for a terminal: control characters and those that reverse the direction of
/// writing are spelled out, so that an event's id can neither move the cursor nor pose as another line.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| {
            if character.is_control() || is_invisible(character) {
                write!(f, "{}", character.escape_default())
            } else {
                f.write_char(character)
            }
        })
    }
}

/// Prints one line of JSON of many. Whether somebody still reads: where nobody does, the rest is for nobody.
pub(crate) fn print_line(value: &Value) -> Result<bool, CliError> {
    let mut line = value.to_string();
    line.push('\n');
    sent(io::stdout().lock().write_all(line.as_bytes()))
}

/// Lines of text in columns, each as wide as its widest cell. The last column is not padded.
pub(crate) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = heads.map(|head| head.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = line(&heads, &widths);
    for row in rows {
        text.push_str(&line(row, &widths));
    }
    text
}

fn line(cells: &[impl AsRef<str>], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().map(AsRef::as_ref).zip(widths) {
        line.push_str(cell);
        let padding = (width + 2).saturating_sub(cell.chars().count());
        line.extend(std::iter::repeat_n(' ', padding));
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// A reader that went away (`| head`) has seen what it wanted: that is no failure, and the exit status stays what the
/// command's answer makes it.
pub(crate) fn write(answer: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    sent(stdout.write_all(answer).and_then(|()| stdout.flush())).map(|_| ())
}

fn sent(written: io::Result<()>) -> Result<bool, CliError> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::unreachable(format!("standard output cannot be written: {error}"))),
    }
}

/// Marks that change the direction of writing, line separators, and characters without width.
const fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(Printable("a\u{1b}[2Jb\nc\u{202e}d\u{9b}").to_string(), r"a\u{1b}[2Jb\nc\u{202e}d\u{9b}");
        assert_eq!(Printable("plain é 漢").to_string(), "plain é 漢");
    }

    #[test]
    fn a_table_is_aligned_and_ends_its_lines_without_spaces() {
        let text = table(["A", "LONG", "C"], &[["one".into(), "2".into(), String::new()]]);
        assert_eq!(text, "A    LONG  C\none  2\n");
    }
}
