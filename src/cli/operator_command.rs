//! The operator's command: a program that is run for each notice.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use countersign::notice::{NotTold, Notice, Operator, TellFuture};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Runs a program with each notice as JSON on its standard input.
#[derive(Debug)]
pub(crate) struct OperatorCommand {
    program: PathBuf,
}

impl OperatorCommand {
    pub(crate) const fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// One run. What it says on stderr goes to ours.
    async fn run(&self, notice: &Notice) -> Result<(), String> {
        let json = serde_json::to_vec(notice).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("it could not be started: {error}"))?;
        let mut group = Group::of(&child);
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read may know all it needs.
            let _ = stdin.write_all(&json).await;
        }
        let status = child.wait().await.map_err(|error| format!("its end is not known: {error}"))?;
        group.leave();
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
    }
}

/// The program and what it has started. Where this is dropped before the program has ended, at its time-out or at our end, all
/// of them are killed: a script hangs because what it waits for does.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// It has ended: its number may soon be somebody else's.
    fn leave(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Whoever is not there any more need not be killed.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Operator for OperatorCommand {
    fn name(&self) -> &'static str {
        "command"
    }

    fn tell(&self, notice: Notice) -> TellFuture<'_> {
        Box::pin(async move {
            match timeout(PATIENCE, self.run(&notice)).await {
                Ok(ended) => ended.map_err(NotTold::new),
                Err(_elapsed) => Err(NotTold::new(format!("it did not end within {PATIENCE:?}, and was killed"))),
            }
        })
    }
}

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(30);
