//! `--operator-endpoint` and `--operator-command`: who is told in time what a person should know.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign::Name;
use countersign::notice::Notices;
use countersign::send::OperatorEndpoint;
use countersign::store::OutboxStore;
use rustix::fs::{Access, access};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::enqueue::name;
use crate::error::CliError;
use crate::maintenance::parse_span;
use crate::operator_command::OperatorCommand;

/// Who is told.
#[derive(Args, Debug)]
pub(crate) struct OperatorArgs {
    /// Endpoint of the same store that gets a signed message for each thing that a person should know: dead letters, quarantine,
    /// disabled endpoints, a backlog that is too old, a store that fails. `dispatch` delivers it
    #[arg(long, value_name = "NAME", value_parser = name, alias = "notices-to")]
    pub(crate) operator_endpoint: Option<Name>,
    /// Program that is run for each of them, with the notice as JSON on its standard input: without a shell or arguments, one at a
    /// time, for 30 seconds at most
    #[arg(long, value_name = "PATH")]
    operator_command: Option<PathBuf>,
    /// For how long something may have been due before they are told
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "10m")]
    overdue_after: Duration,
}

/// Those who are told, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Operators {
    notices: Notices,
    stop: CancellationToken,
    telling: Option<JoinHandle<()>>,
}

impl OperatorArgs {
    /// Whether they can be told at all.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        match &self.operator_command {
            Some(path) if !path.is_file() => Err(CliError::usage(format!(
                "--operator-command: there is no file {}; it takes the path of one program, without arguments",
                path.display()
            ))),
            Some(path) if access(path, Access::EXEC_OK).is_err() => Err(CliError::usage(format!(
                "--operator-command: {} cannot be executed; `chmod +x` it",
                path.display()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Begins to tell them. Where nobody is named, notices are only logged.
    pub(crate) async fn begin(&self, outbox: &Arc<dyn OutboxStore>) -> Result<Operators, CliError> {
        self.check()?;
        let stop = CancellationToken::new();
        if self.operator_endpoint.is_none() && self.operator_command.is_none() {
            return Ok(Operators { notices: Notices::default(), stop, telling: None });
        }
        let mut builder = Notices::builder().overdue_after(Some(self.overdue_after));
        if let Some(name) = &self.operator_endpoint {
            known(&**outbox, name).await?;
            builder = builder.operator(OperatorEndpoint::new(Arc::clone(outbox), name.clone()));
        }
        if let Some(path) = &self.operator_command {
            builder = builder.operator(OperatorCommand::new(path.clone()));
        }
        let (notices, telling) = builder.build();
        let telling = tokio::spawn(telling.run(stop.clone().cancelled_owned()));
        Ok(Operators { notices, stop, telling: Some(telling) })
    }
}

impl Operators {
    pub(crate) const fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Tells what waits, before the store is closed.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Some(telling) = self.telling {
            // What it could not tell it has logged.
            let _ = telling.await;
        }
    }
}

/// Refuses the name of an endpoint that is not there: what is meant for it would be lost.
async fn known(outbox: &dyn OutboxStore, name: &Name) -> Result<(), CliError> {
    match outbox.endpoint(name.clone()).await? {
        Some(_) => Ok(()),
        None => Err(CliError::usage(format!(
            "--operator-endpoint: there is no endpoint `{name}`; add it with `countersign endpoint add`"
        ))),
    }
}
