//! `countersign completions`: what a shell needs to complete commands and flags.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::CliError;
use crate::output::write;

/// Print a script by which a shell completes this program's commands and flags
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign completions bash > /etc/bash_completion.d/countersign
  countersign completions zsh > \"${fpath[1]}/_countersign\"
  countersign completions fish > ~/.config/fish/completions/countersign.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, mut program: Command) -> Result<(), CliError> {
    // To memory first: the generator panics where it cannot write, at a closed pipe for example.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "countersign", &mut script);
    write(&script)
}
