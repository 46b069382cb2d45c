//! Targets: what is checked, shown and dialled is one thing, and no way to write an address leads inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use countersign::send::{Policy, Target};

/// Reads the input as a URL.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Target>() {
        Ok(target) => is_what_it_shows(&target),
        Err(error) => {
            // One of a few texts, none of which repeats the URL.
            let told = error.to_string();
            assert!(told.len() < 120 && (text.len() < 12 || !told.contains(text)), "{told}");
        }
    }
}

fn is_what_it_shows(target: &Target) {
    let shown = target.as_str();
    let again: Target = shown.parse().expect("its own text");
    assert_eq!((&again, again.as_str()), (target, shown));
    assert!(shown.starts_with("https://") || shown.starts_with("http://"));
    assert_eq!(shown.starts_with("https://"), target.is_https());
    assert!(!shown.contains('#'));
    assert_ne!(target.port(), 0);

    // What a second parser makes of the text is the same place: hyper's client reads it.
    let uri: http::Uri = shown.parse().expect("a URI");
    let authority = uri.authority().expect("a host");
    assert!(!authority.as_str().contains('@'));
    assert_eq!(authority.host().trim_matches(['[', ']']), target.host());
    let default = if target.is_https() { 443 } else { 80 };
    assert_eq!(authority.port_u16().unwrap_or(default), target.port());

    let verdict = Policy::new().allow_http().check(target);
    match target.host().parse::<IpAddr>() {
        Ok(address) => match verdict {
            Ok(()) => assert!(leads_outside(address), "{address} is allowed"),
            Err(refusal) => assert_eq!(refusal.address(), Some(address)),
        },
        // A name has to be looked up; it is never an address in another notation.
        Err(_) => {
            assert_eq!(verdict, Ok(()));
            let last = target.host().trim_end_matches('.').rsplit('.').next().unwrap_or_default();
            assert!(last.is_empty() || !last.bytes().all(|byte| byte.is_ascii_digit()), "{}", target.host());
        }
    }
    assert!(target.is_https() || Policy::new().check(target).is_err());
    assert!(Policy::new().allow_http().dangerous_allow_private_targets().check(target).is_ok());
}

/// By what the standard library knows of addresses, which is less than the policy does.
fn leads_outside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_outside_v4(address),
        IpAddr::V6(address) => match (address.to_ipv4_mapped(), address.segments()) {
            (Some(inside), _) => is_outside_v4(inside),
            (None, [0x64, 0xff9b, 0, 0, 0, 0, high, low]) => {
                is_outside_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            }
            (None, [first, ..]) => first & 0xe000 == 0x2000 && !is_inside_v6(address),
        },
    }
}

fn is_outside_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    let is_inside =
        address.is_private() || address.is_loopback() || address.is_link_local() || address.is_documentation();
    !(is_inside || is_shared || first == 0 || first >= 224)
}

fn is_inside_v6(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x2002, ..] | [0x2001, 0 | 0xdb8, ..])
}
