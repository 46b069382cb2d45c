//! From a target to the addresses that may be dialled for it: look up, then judge every one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::resolve::by_turns;
use super::{Failure, Policy, Resolve, Stage, SystemResolver, Target};

/// A policy with a resolver: the one way from a URL to an address, for the client and for whoever only asks.
///
/// ```no_run
/// # async fn example() -> Result<(), countersign::send::Failure> {
/// use countersign::send::{Guard, Policy};
///
/// let guard = Guard::new(Policy::new());
/// for address in guard.vet(&"https://example.com/hook".parse()?).await? {
///     println!("{address} may be called");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Guard {
    policy: Arc<Policy>,
    resolver: Arc<dyn Resolve>,
    lookup_timeout: Duration,
}

impl Guard {
    /// A guard that looks names up as the operating system does, for 5 seconds at most.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy: Arc::new(policy),
            resolver: Arc::new(SystemResolver::new()),
            lookup_timeout: Duration::from_secs(5),
        }
    }

    /// Looks names up elsewhere.
    #[must_use]
    pub fn with_resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Sets how long a look-up may take.
    #[must_use]
    pub const fn with_lookup_timeout(mut self, time: Duration) -> Self {
        self.lookup_timeout = time;
        self
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The addresses that may be dialled for this target, in the order in which to try them.
    ///
    /// # Errors
    ///
    /// - [`Failure::Refused`] if the policy denies the target, or any address of its name.
    /// - [`Failure::Dns`] if the name has no address, or nobody could tell; [`Failure::Timeout`] if that took too long.
    ///   No answer never counts as a permission, nor as a refusal.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped at any time.
    pub async fn vet(&self, target: &Target) -> Result<Vec<SocketAddr>, Failure> {
        let refused = self.policy.check(target);
        if let Some(address) = target.address() {
            refused?;
            return Ok(vec![SocketAddr::new(address, target.port())]);
        }
        match (refused, self.look_up(target).await) {
            // What else speaks against it is said in one go, as far as it is known.
            (Err(refused), Err(Failure::Refused(more))) => {
                Err(if more.address().is_some() { more } else { refused }.into())
            }
            (Err(refused), _) => Err(refused.into()),
            (Ok(()), addresses) => addresses,
        }
    }

    /// Looks the name up, and judges every address that it leads to.
    async fn look_up(&self, target: &Target) -> Result<Vec<SocketAddr>, Failure> {
        let host = target.host().to_owned();
        let lookup = timeout(self.lookup_timeout, self.resolver.resolve(&host)).await;
        let addresses = match lookup {
            Ok(Ok(addresses)) if addresses.is_empty() => {
                return Err(Failure::Dns { host, reason: "it has no address".to_owned() });
            }
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) => return Err(Failure::Dns { host, reason: error.to_string() }),
            Err(_elapsed) => return Err(Failure::Timeout(Stage::Resolve)),
        };
        for address in &addresses {
            self.policy.check_address(target, *address)?;
        }
        let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect();
        Ok(by_turns(addresses))
    }
}
