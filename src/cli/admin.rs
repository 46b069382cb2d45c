//! `--admin-listen`: health and metrics for tools, and the pages for people, on an address of their own.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign::SecretFormat;
use countersign::admin::Admin;
use countersign::store::{InboxStore, OutboxStore};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::warn;
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::health::{Half, Health};
use crate::prometheus::Prometheus;
use crate::receive::listen;
use crate::secrets::token_at;
use crate::serve::serve;

/// Where operators look, and what lets them in.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// Where /healthz, /readyz, /metrics and the operators' pages are served
    #[arg(long, value_name = "HOST:PORT")]
    admin_listen: Option<SocketAddr>,
    /// Environment variable that holds the token for the pages; they need one unless they are on loopback
    #[arg(long, value_name = "NAME", requires = "admin_listen", conflicts_with = "admin_token_file")]
    admin_token_env: Option<String>,
    /// File that holds it
    #[arg(long, value_name = "PATH", requires = "admin_listen")]
    admin_token_file: Option<PathBuf>,
}

/// The address, and what is known before there is a store.
#[derive(Debug)]
pub(crate) struct AdminPlace {
    address: SocketAddr,
    pages: Option<Admin>,
    metrics: Prometheus,
}

impl AdminArgs {
    /// What is wrong with it, the token among it.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        self.admin_listen.map_or(Ok(()), |address| self.pages(address).map(drop))
    }

    /// Reads the token. From now on metrics are counted, where anybody will ask for them.
    pub(crate) fn place(&self) -> Result<Option<AdminPlace>, CliError> {
        let Some(address) = self.admin_listen else { return Ok(None) };
        let pages = self.pages(address)?;
        Ok(Some(AdminPlace { address, pages, metrics: Prometheus::install() }))
    }

    fn pages(&self, address: SocketAddr) -> Result<Option<Admin>, CliError> {
        let (env, file) = (self.admin_token_env.as_ref(), self.admin_token_file.as_ref());
        let token = token_at(["admin-token-env", "admin-token-file"], env, file, |text| {
            // Held to the rules of every secret: not empty, no line breaks in it.
            SecretFormat::Text.parse(text).map(|_| Zeroizing::new(text.to_owned()))
        })?;
        let unusable = |error| CliError::usage(format!("--admin-token: {error}"));
        Ok(match token {
            Some(token) => Some(Admin::behind_token(&token).map_err(unusable)?),
            None if address.ip().is_loopback() => Some(Admin::on_loopback().map_err(unusable)?),
            None => {
                warn!(
                    "no pages for operators on {address}: others can reach it; give --admin-token-env or \
                     --admin-token-file"
                );
                None
            }
        })
    }
}

impl AdminPlace {
    pub(crate) async fn listen(&self) -> Result<TcpListener, CliError> {
        listen(self.address).await
    }

    /// Serves until `stop` resolves. `half` is what this process does; the pages show both sides of its store.
    pub(crate) fn serve(
        self,
        listener: TcpListener,
        half: Half,
        (inbox, outbox): (Arc<dyn InboxStore>, Arc<dyn OutboxStore>),
        stop: impl Future<Output = ()> + Send + 'static,
        grace: Duration,
    ) -> JoinHandle<Duration> {
        let pages = self.pages.map(|pages| pages.with_inbox(inbox).with_outbox(outbox).router());
        let is_on_loopback = self.address.ip().is_loopback();
        tokio::spawn(serve(listener, Health { half, metrics: self.metrics, pages, is_on_loopback }, stop, grace))
    }
}
