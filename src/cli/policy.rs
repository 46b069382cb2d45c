//! `--allow-http` and its like: what may be called, and the transport that holds to it.

use clap::Args;
use countersign::ConfigError;
use countersign::send::{Exception, Guard, HttpTransport, Policy};
use rustls::{ClientConfig, RootCertStore};

use crate::error::CliError;

/// What may be called beside `https` at public addresses.
#[derive(Args, Clone, Debug)]
pub(crate) struct PolicyArgs {
    /// Allow http too: whoever is on the way reads each message
    #[arg(long)]
    allow_http: bool,
    /// Allow an address that is not public; repeatable
    ///
    /// A host or a network, and a port where only one is meant: hooks.internal, 10.0.0.0/8, 10.0.0.24:8079
    #[arg(long, value_name = "HOST_OR_CIDR[:PORT]", value_parser = exception)]
    allow: Vec<Exception>,
    /// Allow every address: this machine, its network, and its cloud's credentials
    #[arg(long)]
    dangerous_allow_private_targets: bool,
}

impl PolicyArgs {
    pub(crate) fn guard(&self) -> Guard {
        let mut policy = Policy::new();
        if self.allow_http {
            policy = policy.allow_http();
        }
        if self.dangerous_allow_private_targets {
            policy = policy.dangerous_allow_private_targets();
        }
        Guard::new(self.allow.iter().cloned().fold(policy, Policy::with_exception))
    }

    /// A client that calls what is allowed.
    pub(crate) fn transport(&self) -> Result<HttpTransport, CliError> {
        // Fails where there is one already: then that is taken.
        let _ = rustls::crypto::ring::default_provider().install_default();
        match HttpTransport::builder(self.guard()).build() {
            // Plain http needs none.
            Err(ConfigError::NoRootCertificates) if self.allow_http => {
                tracing::warn!("{}: nothing can be sent by https", ConfigError::NoRootCertificates);
                let nobody = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
                Ok(HttpTransport::builder(self.guard()).tls(nobody.with_no_client_auth()).build()?)
            }
            built => Ok(built?),
        }
    }
}

fn exception(text: &str) -> Result<Exception, String> {
    text.parse().map_err(|error: countersign::send::ExceptionError| error.to_string())
}
