//! Which addresses are public. One function answers that, for every address that is about to be dialled.
//!
//! It allows what is known to be reachable from everywhere and denies the rest, so that a range which nobody thought of
//! is denied. An IPv4 address inside an IPv6 one is judged as itself where the form leads to it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A range of addresses that are not public, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    net: IpNet,
    name: &'static str,
}

impl Block {
    /// The range.
    #[must_use]
    pub const fn net(&self) -> IpNet {
        self.net
    }

    /// What it is for, in a word or a few: `loopback`, `private`, `link-local`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// For example `127.0.0.0/8 is loopback`.
impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.net, self.name)
    }
}

/// The block that keeps an address from being public; none for a public one.
///
/// IPv4 in IPv6: an IPv4-mapped address and one of the well-known NAT64 prefix are judged by the address inside, since
/// that is where they lead. The other forms (compatible, translated, 6to4, Teredo, local NAT64) are denied as a whole:
/// they are obsolete, or lead to places that only their network knows.
pub(super) fn block_of(address: IpAddr) -> Option<Block> {
    match address {
        IpAddr::V4(address) => block_of_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(inside) => block_of_v4(inside),
            None => block_of_v6(address),
        },
    }
}

fn block_of_v4(address: Ipv4Addr) -> Option<Block> {
    let (net, name) = V4.iter().find(|(net, _)| net.contains(&address))?;
    Some(Block { net: IpNet::V4(*net), name })
}

fn block_of_v6(address: Ipv6Addr) -> Option<Block> {
    if GLOBAL_UNICAST.contains(&address) && !V6_WITHIN_GLOBAL.iter().any(|(net, _)| net.contains(&address)) {
        return None;
    }
    let known = V6_WITHIN_GLOBAL.iter().chain(V6_NAMES).find(|(net, _)| net.contains(&address));
    let (net, name) = known.copied().unwrap_or((REST, "not assigned to public use"));
    Some(Block { net: IpNet::V6(net), name })
}

/// The IPv4 address that packets to this address end up at.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    (MAPPED.contains(&address) || NAT64.contains(&address)).then(|| Ipv4Addr::new(a, b, c, d))
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(s: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]), length)
}

/// The IANA registry of special IPv4 addresses, where it does not say "globally reachable", with multicast. Two
/// addresses within 192.0.0.0/24 are reachable; they are anycast addresses of the network's own services.
const V4: &[(Ipv4Net, &str)] = &[
    (v4(0, 0, 0, 0, 8), "\"this network\""),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared behind carrier NAT"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    // Public by the registry, and Azure's own service to each of its machines: credentials and configuration.
    (v4(168, 63, 129, 16, 32), "platform"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "for IETF protocols"),
    (v4(192, 0, 2, 0, 24), "for documentation"),
    (v4(192, 88, 99, 0, 24), "the former 6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "for benchmarks"),
    (v4(198, 51, 100, 0, 24), "for documentation"),
    (v4(203, 0, 113, 0, 24), "for documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// The only part of IPv6 that is assigned to public use.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// What is special within it. As with 192.0.0.0/24, a few addresses of the first range are reachable services of networks.
const V6_WITHIN_GLOBAL: &[(Ipv6Net, &str)] = &[
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "for IETF protocols"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "for documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "for documentation"),
];

/// Names for what lies outside: they explain, and decide nothing.
const V6_NAMES: &[(Ipv6Net, &str)] = &[
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "no address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "IPv4-translated"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "local NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discarded"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "for segment routing"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

const REST: Ipv6Net = v6([0; 8], 0);
const MAPPED: Ipv6Net = v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96);
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(address: &str) -> Option<&'static str> {
        block_of(address.parse().expect("an address")).map(|block| block.name())
    }

    #[test]
    fn c133_each_block_is_denied_to_its_edges_and_its_neighbours_are_not() {
        for (net, name) in V4 {
            for edge in [net.network(), net.broadcast()] {
                assert_eq!(
                    block_of(edge.into()).map(|block| (block.net(), block.name())),
                    Some(((*net).into(), *name))
                );
            }
            let neighbours = [u32::from(net.network()).checked_sub(1), u32::from(net.broadcast()).checked_add(1)];
            for neighbour in neighbours.into_iter().flatten().map(Ipv4Addr::from) {
                let in_another = V4.iter().any(|(other, _)| other.contains(&neighbour));
                assert_eq!(block_of(neighbour.into()).is_some(), in_another, "{neighbour}");
            }
        }
        for (net, _) in V6_WITHIN_GLOBAL {
            for edge in [net.network(), net.broadcast()] {
                assert!(block_of(edge.into()).is_some(), "{edge}");
            }
        }
        for public in [
            "2001:200::",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "2003::1",
            "2000::1",
            "3ffe:ffff::1",
            "3fff:1000::1",
            "2620:4f:8000::1",
            "192.31.196.1",
            "192.52.193.1",
            "192.175.48.1",
            "192.0.1.1",
            "192.0.3.1",
        ] {
            assert_eq!(name(public), None, "{public}");
        }
        for outside in ["1fff:ffff::1", "4000::1", "5f00::1", "8000::1", "e000::1", "fec0::1", "fe00::1"] {
            assert!(name(outside).is_some(), "{outside}");
        }
    }

    #[test]
    fn c129_ipv4_inside_ipv6_is_judged_as_what_it_leads_to() {
        for (address, expected) in [
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:8.8.8.8", None),
            ("::127.0.0.1", Some("IPv4-compatible")),
            ("::8.8.8.8", Some("IPv4-compatible")),
            ("::ffff:0:127.0.0.1", Some("IPv4-translated")),
            ("64:ff9b::10.0.0.5", Some("private")),
            ("2002:7f00:1::1", Some("6to4")),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Some("Teredo")),
            ("2001:2::1", Some("for IETF protocols")),
            ("::", Some("no address")),
            ("::1", Some("loopback")),
            ("fe80::5efe:127.0.0.1", Some("link-local")),
        ] {
            assert_eq!(name(address), expected, "{address}");
        }
    }

    #[test]
    fn c132_nat64_is_judged_by_the_address_inside_and_its_local_prefix_is_denied() {
        assert_eq!(name("64:ff9b::101:101"), None);
        assert_eq!(name("64:ff9b::a9fe:a9fe"), Some("link-local"));
        assert_eq!(name("64:ff9b:1::101:101"), Some("local NAT64"));
        assert_eq!(name("64:ff9b:0:0:0:1:101:101"), Some("not assigned to public use"));
    }
}
