//! Which targets may be called: decided from values alone, for a URL and for each address that its name leads to.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;
use url::Host;

use super::Target;
use super::address::{self, Block};

/// What may be called. By default `https` at public addresses, on any port.
///
/// The policy looks at addresses and not at names: it is asked again for every address of a name when a connection is
/// made, and the address that passed is the one that is dialled. Where a name has several addresses and one of them is
/// denied, the target is denied: a name that leads inside and outside at the same time is a mistake, or an attack.
///
/// ```
/// use countersign::send::{Exception, Policy};
///
/// let policy = Policy::new().with_exception("10.0.0.24/32:8079".parse::<Exception>()?);
/// assert!(policy.check(&"https://10.0.0.24:8079/hook".parse()?).is_ok());
///
/// let refusal = policy.check(&"https://10.0.0.25:8079/hook".parse()?).unwrap_err();
/// assert_eq!(refusal.rule().to_string(), "10.0.0.0/8 is private");
/// assert_eq!(refusal.setting(), r#"Policy::with_exception("10.0.0.25/32:8079")"#);
/// assert_eq!(refusal.flag(), "--allow 10.0.0.25/32:8079");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    allows_http: bool,
    allows_private: bool,
    exceptions: Vec<Exception>,
}

impl Policy {
    /// The default: `https` and public addresses only.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows `http` too. Whoever is on the way then reads each message, and can answer in the receiver's place.
    #[must_use]
    pub const fn allow_http(mut self) -> Self {
        self.allows_http = true;
        self
    }

    /// Allows every address: this machine, its network, and the credentials service of its cloud. For tests, and for
    /// systems where nobody outside can choose a URL. [`with_exception`](Self::with_exception) is nearly always better.
    #[must_use]
    pub const fn dangerous_allow_private_targets(mut self) -> Self {
        self.allows_private = true;
        self
    }

    /// Allows addresses that are not public, as far as the exception goes. It does not allow `http`.
    #[must_use]
    pub fn with_exception(mut self, exception: Exception) -> Self {
        self.exceptions.push(exception);
        self
    }

    /// Judges what can be judged without a look-up: the scheme, and the host where it is an address.
    ///
    /// # Errors
    ///
    /// [`Refusal`] says which rule speaks against it.
    pub fn check(&self, target: &Target) -> Result<(), Refusal> {
        match target.address() {
            Some(address) => self.check_address(target, address),
            None if self.lacks_encryption(target) => Err(Refusal::new(target, None, Rule::PlainHttp)),
            None => Ok(()),
        }
    }

    /// Judges the target at one address that its host leads to.
    ///
    /// # Errors
    ///
    /// [`Refusal`] says which rules speak against it: all of them, so that nobody meets them one by one.
    pub fn check_address(&self, target: &Target, address: IpAddr) -> Result<(), Refusal> {
        let lacks_encryption = self.lacks_encryption(target);
        match address::block_of(address) {
            Some(block) if !self.allows_private && !self.is_excepted(target, address) => {
                let refusal = Refusal::new(target, Some(address), Rule::NotPublic(block));
                Err(Refusal { lacks_encryption, ..refusal })
            }
            _ if lacks_encryption => Err(Refusal::new(target, Some(address), Rule::PlainHttp)),
            Some(_) | None => Ok(()),
        }
    }

    fn lacks_encryption(&self, target: &Target) -> bool {
        !target.is_https() && !self.allows_http
    }

    fn is_excepted(&self, target: &Target, address: IpAddr) -> bool {
        self.exceptions.iter().any(|exception| exception.covers(target, address))
    }
}

/// A target that is allowed although its address is not public: a host or a network, and a port where only one is meant.
///
/// As text `HOST`, `NETWORK` or one of them with a port: `hooks.internal`, `10.0.0.0/8`, `10.0.0.24:8079`,
/// `10.0.0.24/32:8079`, `[fd00::/8]:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    host: Option<String>,
    network: Option<IpNet>,
    port: Option<u16>,
}

/// A text that is no exception.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no exception; write a host or a network, like hooks.internal, 10.0.0.0/8, 10.0.0.24:8079 or [fd00::/8]:443"
)]
pub struct ExceptionError(String);

impl Exception {
    /// Every address that this name leads to, whatever it is at the time. Whoever answers for the name decides what is
    /// called; [`within`](Self::within) holds them to a network.
    ///
    /// # Errors
    ///
    /// [`ExceptionError`] for what cannot be the host of a URL, and for an address, which is a network of one.
    pub fn host(name: &str) -> Result<Self, ExceptionError> {
        match Host::parse(name) {
            Ok(Host::Domain(host)) => Ok(Self { host: Some(undotted(&host).to_owned()), network: None, port: None }),
            Ok(Host::Ipv4(_) | Host::Ipv6(_)) | Err(_) => Err(ExceptionError(name.to_owned())),
        }
    }

    /// Every host whose address lies in this network.
    #[must_use]
    pub const fn network(network: IpNet) -> Self {
        Self { host: None, network: Some(network), port: None }
    }

    /// Of these targets, only those at an address in this network.
    #[must_use]
    pub const fn within(mut self, network: IpNet) -> Self {
        self.network = Some(network);
        self
    }

    /// Of these targets, only those on this port.
    #[must_use]
    pub const fn on_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    fn covers(&self, target: &Target, address: IpAddr) -> bool {
        // An exception for an IPv4 network also means its addresses in the form that a look-up for IPv6 gives them.
        let is_inside = |network: &IpNet| network.contains(&address) || network.contains(&address.to_canonical());
        self.host.as_ref().is_none_or(|host| *host == undotted(target.host()))
            && self.network.as_ref().is_none_or(is_inside)
            && self.port.is_none_or(|port| port == target.port())
    }
}

impl FromStr for Exception {
    type Err = ExceptionError;

    fn from_str(text: &str) -> Result<Self, ExceptionError> {
        let refused = || ExceptionError(text.to_owned());
        let whole = |text: &str| {
            let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.map_or_else(|_| Self::host(text), |network| Ok(Self::network(network)))
        };
        // An IPv6 network holds colons: it is read as a whole unless brackets set it apart from a port.
        if let Ok(exception) = whole(text) {
            return Ok(exception);
        }
        let (place, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (place, port) = rest.split_once(']').ok_or_else(refused)?;
                let port = if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(refused)?) };
                (place, port)
            }
            None => text.rsplit_once(':').map(|(place, port)| (place, Some(port))).ok_or_else(refused)?,
        };
        let exception = whole(place).map_err(|_| refused())?;
        match port.map(str::parse::<u16>) {
            None => Ok(exception),
            Some(Ok(port)) if port != 0 => Ok(exception.on_port(port)),
            Some(_) => Err(refused()),
        }
    }
}

/// What speaks against a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The address lies in a block that is not public.
    NotPublic(Block),
    /// The URL is `http`.
    PlainHttp,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublic(block) => block.fmt(f),
            Self::PlainHttp => f.write_str("plain http is not encrypted"),
        }
    }
}

/// The policy's no: which host, which address, which rule, and what would have to be set. For operators; what to show
/// to others is [`for_tenants`](Self::for_tenants).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{host}{} must not be called: {rule}{}; `{}` would allow it (`{}` of the program)",
    AtAddress(.host, .address), self.and_http(), self.setting(), self.flag()
)]
pub struct Refusal {
    host: String,
    address: Option<IpAddr>,
    rule: Rule,
    /// Whether plain http speaks against it, alone or beside its address.
    lacks_encryption: bool,
    /// The narrowest one that would allow it, as its text.
    exception: Option<String>,
}

impl Refusal {
    fn new(target: &Target, address: Option<IpAddr>, rule: Rule) -> Self {
        let exception = match (rule, address.map(|address| address.to_canonical())) {
            (Rule::NotPublic(_), Some(IpAddr::V4(address))) => Some(format!("{address}/32:{}", target.port())),
            (Rule::NotPublic(_), Some(IpAddr::V6(address))) => Some(format!("[{address}/128]:{}", target.port())),
            (Rule::NotPublic(_), None) => Some(format!("{}:{}", target.host(), target.port())),
            (Rule::PlainHttp, _) => None,
        };
        let lacks_encryption = rule == Rule::PlainHttp;
        Self { host: target.host().to_owned(), address, rule, lacks_encryption, exception }
    }

    fn and_http(&self) -> String {
        let both = self.lacks_encryption && self.rule != Rule::PlainHttp;
        if both { format!(", and {}", Rule::PlainHttp) } else { String::new() }
    }

    /// The host of the URL.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address that was denied; none where the URL was enough.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Which rule speaks against it; where plain http does too, the one about its address.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// The narrowest [`Exception`] that would allow it, as its text. None where it takes something else.
    #[must_use]
    pub fn exception(&self) -> Option<&str> {
        self.exception.as_deref()
    }

    /// The narrowest settings that would allow it, as they are called here.
    #[must_use]
    pub fn setting(&self) -> String {
        let exception = self.exception.as_ref().map(|exception| format!("Policy::with_exception({exception:?})"));
        self.settings("Policy::allow_http", exception).join(" and ")
    }

    /// The same as flags of the program `countersign`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.settings("--allow-http", self.exception.as_ref().map(|exception| format!("--allow {exception}"))).join(" ")
    }

    fn settings(&self, http: &str, exception: Option<String>) -> Vec<String> {
        self.lacks_encryption.then(|| http.to_owned()).into_iter().chain(exception).collect()
    }

    /// The same for those who chose the URL: it does not tell what addresses names have inside our network.
    #[must_use]
    pub const fn for_tenants(&self) -> &'static str {
        match self.rule {
            Rule::NotPublic(_) => "the URL does not lead to a public address",
            Rule::PlainHttp => "the URL must begin with https://",
        }
    }
}

/// The address behind a host, unless the host is the address.
struct AtAddress<'a>(&'a str, &'a Option<IpAddr>);

impl fmt::Display for AtAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(address) if address.to_string() != self.0 => write!(f, " (at {address})"),
            Some(_) | None => Ok(()),
        }
    }
}

/// A name that ends with a dot is the same name.
fn undotted(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        url.parse().expect(url)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    fn exception(text: &str) -> Exception {
        text.parse().expect(text)
    }

    #[test]
    fn c141_an_exception_allows_what_it_names_and_no_more() {
        let policy = Policy::new().with_exception(exception("10.0.0.24/32:8079"));
        let allows = |url: &str| policy.check(&target(url)).is_ok();
        assert!(allows("https://10.0.0.24:8079/"));
        assert!(allows("https://[::ffff:10.0.0.24]:8079/"));
        assert!(!allows("https://10.0.0.25:8079/"));
        assert!(!allows("https://10.0.0.24:22/"));
        assert!(!allows("https://10.0.0.24/"));
        assert!(!allows("http://10.0.0.24:8079/"), "it does not allow http");
        assert!(policy.check_address(&target("https://any.example:8079/"), ip("10.0.0.24")).is_ok());
    }

    #[test]
    fn c141_an_exception_for_a_host_can_be_held_to_a_network() {
        let host = exception("db.internal");
        let policy = Policy::new().with_exception(host.clone());
        let at = |policy: &Policy, url: &str, address: &str| policy.check_address(&target(url), ip(address)).is_ok();
        assert!(at(&policy, "https://DB.internal./", "192.168.10.20"));
        assert!(at(&policy, "https://db.internal/", "169.254.169.254"));
        assert!(!at(&policy, "https://db.internal.example/", "192.168.10.20"));

        let policy = Policy::new().with_exception(host.within("192.168.0.0/16".parse().expect("a network")));
        assert!(at(&policy, "https://db.internal/", "192.168.10.20"));
        assert!(!at(&policy, "https://db.internal/", "169.254.169.254"));
        assert!(!at(&policy, "https://other.internal/", "192.168.10.20"));
    }

    #[test]
    fn c133_any_range_can_be_excepted() {
        let policy =
            Policy::new().with_exception(exception("198.18.0.0/15")).with_exception(exception("64:ff9b:1::/48"));
        for url in ["https://198.18.0.1/", "https://198.19.255.255/", "https://[64:ff9b:1::a00:5]/"] {
            assert_eq!(policy.check(&target(url)), Ok(()), "{url}");
            assert!(Policy::new().check(&target(url)).is_err(), "{url}");
        }
        assert!(policy.check(&target("https://[64:ff9b::a00:5]/")).is_err());
    }

    #[test]
    fn an_exception_is_read_from_its_text() {
        let network = |text: &str| Exception::network(text.parse().expect(text));
        assert_eq!(exception("10.0.0.0/8"), network("10.0.0.0/8"));
        assert_eq!(exception("10.0.0.24"), network("10.0.0.24/32"));
        assert_eq!(exception("10.0.0.24:80"), network("10.0.0.24/32").on_port(80));
        assert_eq!(exception("fd00::/8"), network("fd00::/8"));
        assert_eq!(exception("[fd00::/8]:443"), network("fd00::/8").on_port(443));
        assert_eq!(exception("[::1]:443"), network("::1/128").on_port(443));
        assert_eq!(exception("[::1]"), network("::1/128"));
        assert_eq!(exception("Hooks.Internal:8443"), Exception::host("hooks.internal").expect("a host").on_port(8443));
        for text in ["", "10.0.0.0/33", "host:0", "host:65536", "host:x", "a b", "[::1", "[::1]x", "https://x/", ":443"]
        {
            assert!(text.parse::<Exception>().is_err(), "{text}");
        }
    }

    #[test]
    fn c141_a_refusal_says_host_address_rule_and_setting() {
        let refusal =
            Policy::new().check_address(&target("https://hooks.example/"), ip("10.0.0.5")).expect_err("private");
        assert_eq!(
            refusal.to_string(),
            "hooks.example (at 10.0.0.5) must not be called: 10.0.0.0/8 is private; \
             `Policy::with_exception(\"10.0.0.5/32:443\")` would allow it (`--allow 10.0.0.5/32:443` of the program)"
        );
        let suggested = refusal.exception().expect("an exception");
        let policy = Policy::new().with_exception(exception(suggested));
        assert!(policy.check_address(&target("https://hooks.example/"), ip("10.0.0.5")).is_ok());

        let refusal = Policy::new().check(&target("https://[fd20:ce::254]:8443/")).expect_err("private");
        let suggested = refusal.exception().expect("an exception");
        let policy = Policy::new().with_exception(exception(suggested));
        assert!(policy.check(&target("https://[fd20:ce::254]:8443/")).is_ok());

        let refusal = Policy::new().check(&target("http://1.1.1.1/")).expect_err("http");
        assert_eq!(
            refusal.to_string(),
            "1.1.1.1 must not be called: plain http is not encrypted; \
             `Policy::allow_http` would allow it (`--allow-http` of the program)"
        );
    }

    #[test]
    fn a_refusal_names_all_that_speaks_against_a_target() {
        let refused = |policy: Policy| policy.check(&target("http://127.0.0.1:8080/"));
        let refusal = refused(Policy::new()).expect_err("two rules");
        assert_eq!(
            refusal.to_string(),
            "127.0.0.1 must not be called: 127.0.0.0/8 is loopback, and plain http is not encrypted; \
             `Policy::allow_http and Policy::with_exception(\"127.0.0.1/32:8080\")` would allow it \
             (`--allow-http --allow 127.0.0.1/32:8080` of the program)"
        );
        let exception = exception(refusal.exception().expect("an exception"));
        assert_eq!(refused(Policy::new().allow_http().with_exception(exception.clone())), Ok(()));
        assert_eq!(refused(Policy::new().allow_http()).expect_err("one rule").flag(), "--allow 127.0.0.1/32:8080");
        assert_eq!(refused(Policy::new().with_exception(exception)).expect_err("one rule").flag(), "--allow-http");
    }

    #[test]
    fn c127_what_tenants_are_told_holds_no_address() {
        let refusal =
            Policy::new().check_address(&target("https://hooks.example/"), ip("10.0.0.5")).expect_err("private");
        assert!(refusal.to_string().contains("10.0.0.5"));
        assert_eq!(refusal.for_tenants(), "the URL does not lead to a public address");
    }
}
