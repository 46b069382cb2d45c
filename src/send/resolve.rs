//! Names to addresses.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::Semaphore;

/// The future of a look-up.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Looks up names. [`SystemResolver`] is the one to use; another one may speak to a DNS server of its own choice.
///
/// It is asked once for each new connection, and only for names. Its answers are judged by the policy before any of
/// them is dialled.
pub trait Resolve: fmt::Debug + Send + Sync + 'static {
    /// All addresses of the name.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] where the name has none, or nobody could tell. Nothing is sent then.
    ///
    /// # Cancel safety
    ///
    /// Dropped where the attempt runs out of time: a look-up that goes on must not hold up others.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a>;
}

/// Why a name could not be looked up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ResolveError(String);

impl ResolveError {
    /// With what the resolver says.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The operating system's resolver, with all that it is configured to do, `/etc/hosts` among it.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

/// The system's look-up blocks a thread, and goes on when nobody waits for it any more. Names that nobody answers for
/// must not use up the threads that the rest of the application shares.
const LOOKUPS_AT_ONCE: usize = 64;

impl SystemResolver {
    /// A resolver that makes up to 64 look-ups at a time; further ones wait.
    #[must_use]
    pub fn new() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)) }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let permit = Arc::clone(&self.lookups).acquire_owned().await;
            let permit = permit.map_err(|_closed| ResolveError::new("the resolver was closed"))?;
            let name = name.to_owned();
            let lookup = tokio::task::spawn_blocking(move || {
                // Given back when the look-up ends, not when its caller stops waiting.
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|found| found.ip()).collect())
            });
            match lookup.await {
                Ok(Ok(addresses)) => Ok(addresses),
                Ok(Err(error)) => Err(ResolveError::new(error.to_string())),
                Err(error) => Err(ResolveError::new(error.to_string())),
            }
        })
    }
}

/// The addresses in the order in which they are tried: the resolver's, but of both families by turns, so that a family
/// that leads nowhere costs one wait only.
pub(super) fn by_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut second = second.into_iter();
    let mut ordered: Vec<SocketAddr> =
        first.into_iter().flat_map(|address| [Some(address), second.next()]).flatten().collect();
    ordered.extend(second);
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_knows_this_machine_and_not_what_cannot_be() {
        let resolver = SystemResolver::new();
        let found = resolver.resolve("localhost").await.expect("an address");
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
        assert!(resolver.resolve("no-such-name.invalid").await.is_err());
    }

    #[test]
    fn both_families_take_turns() {
        let all = |text: &str| text.split(' ').map(|one| one.parse().expect(one)).collect::<Vec<SocketAddr>>();
        let ordered = by_turns(all("[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1"));
        assert_eq!(ordered, all("[::1]:1 1.1.1.1:1 [::2]:1 [::3]:1"));
        let ordered = by_turns(all("1.1.1.1:1 [::1]:1 [::2]:1 [::3]:1"));
        assert_eq!(ordered, all("1.1.1.1:1 [::1]:1 [::2]:1 [::3]:1"));
        assert!(by_turns(Vec::new()).is_empty());
    }
}
