//! What a message signature can cover: parts of a request, and how each is written in the signature base.

use http::{HeaderMap, HeaderName, Uri};

use crate::signature::Head;

/// A covered component of a request (RFC 9421, section 2). Those with parameters are not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Component {
    Method,
    TargetUri,
    Authority,
    Scheme,
    RequestTarget,
    Path,
    Query,
    Field(HeaderName),
}

/// Why a component has no value in a request.
#[derive(Debug)]
pub(super) enum NoValue {
    /// The URL is not known, or is none.
    Url,
    Missing(HeaderName),
    /// It holds something that a signature base cannot.
    Unreadable(HeaderName),
}

const DERIVED: [(&str, Component); 7] = [
    ("@method", Component::Method),
    ("@target-uri", Component::TargetUri),
    ("@authority", Component::Authority),
    ("@scheme", Component::Scheme),
    ("@request-target", Component::RequestTarget),
    ("@path", Component::Path),
    ("@query", Component::Query),
];

impl Component {
    /// The component of this name: `@method`, or the name of a header in lower case.
    pub(super) fn named(name: &str) -> Option<Self> {
        if name.starts_with('@') {
            return DERIVED.into_iter().find(|(derived, _)| *derived == name).map(|(_, component)| component);
        }
        let lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        lower.then(|| HeaderName::from_bytes(name.as_bytes()).ok().map(Self::Field)).flatten()
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Field(name) => name.as_str(),
            derived => DERIVED.iter().find(|(_, other)| other == derived).map_or("", |(name, _)| name),
        }
    }

    /// Whether its value is taken from the URL.
    pub(super) const fn is_of_url(&self) -> bool {
        !matches!(self, Self::Method | Self::Field(_))
    }

    /// Its value in a request; `url` is that of the head, read.
    pub(super) fn value(&self, head: &Head<'_>, url: Option<&Uri>) -> Result<String, NoValue> {
        match self {
            Self::Method => return Ok(head.method().as_str().to_owned()),
            Self::Field(name) => return field(head.headers(), name),
            _ => {}
        }
        let url = url.ok_or(NoValue::Url)?;
        let (Some(scheme), Some(_)) = (url.scheme_str(), url.authority()) else { return Err(NoValue::Url) };
        Ok(match self {
            Self::TargetUri => head.url().to_owned(),
            Self::Authority => authority(url, scheme),
            Self::Scheme => scheme.to_ascii_lowercase(),
            Self::RequestTarget => url.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            Self::Path => url.path().to_owned(),
            Self::Query => format!("?{}", url.query().unwrap_or_default()),
            Self::Method | Self::Field(_) => String::new(),
        })
    }
}

/// All lines of a header as one value: each without outer spaces, joined by a comma and a space.
pub(super) fn field(headers: &HeaderMap, name: &HeaderName) -> Result<String, NoValue> {
    let mut joined: Option<String> = None;
    for line in headers.get_all(name) {
        let line = line.to_str().map_err(|_| NoValue::Unreadable(name.clone()))?.trim_matches([' ', '\t']);
        match &mut joined {
            None => joined = Some(line.to_owned()),
            Some(joined) => {
                joined.push_str(", ");
                joined.push_str(line);
            }
        }
    }
    joined.ok_or_else(|| NoValue::Missing(name.clone()))
}

/// Host and port in their normal form: lower case, and no port that goes without saying.
fn authority(url: &Uri, scheme: &str) -> String {
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    let default = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    match url.port_u16() {
        Some(port) if port != default => format!("{host}:{port}"),
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;

    fn value(name: &str, url: &str, headers: &HeaderMap) -> Option<String> {
        let head = Head::new(&Method::POST, url, headers);
        Component::named(name)?.value(&head, url.parse().ok().as_ref()).ok()
    }

    #[test]
    fn parts_of_the_url_have_the_values_of_the_rfc() {
        let url = "https://WWW.Example.com:443/path?param=value&foo=bar&baz=bat%2Dman";
        for (name, expected) in [
            ("@method", "POST"),
            ("@target-uri", url),
            ("@authority", "www.example.com"),
            ("@scheme", "https"),
            ("@request-target", "/path?param=value&foo=bar&baz=bat%2Dman"),
            ("@path", "/path"),
            ("@query", "?param=value&foo=bar&baz=bat%2Dman"),
        ] {
            assert_eq!(value(name, url, &HeaderMap::new()).as_deref(), Some(expected), "{name}");
        }
        let short = "http://h.example:8080";
        for (name, expected) in
            [("@authority", "h.example:8080"), ("@path", "/"), ("@query", "?"), ("@request-target", "/")]
        {
            assert_eq!(value(name, short, &HeaderMap::new()).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(
            value("@authority", "http://[2001:DB8::1]:80/", &HeaderMap::new()).as_deref(),
            Some("[2001:db8::1]")
        );
        assert_eq!(value("@path", "/in", &HeaderMap::new()), None);
    }

    #[test]
    fn the_lines_of_a_header_are_joined() {
        let mut headers = HeaderMap::new();
        for line in ["  a, b ", "", "c\t"] {
            headers.append("x-list", HeaderValue::from_static(line));
        }
        headers.append("x-odd", HeaderValue::from_bytes(b"\xff").expect("a value"));
        assert_eq!(value("x-list", "", &headers).as_deref(), Some("a, b, , c"));
        assert_eq!((value("x-odd", "", &headers), value("x-none", "", &headers)), (None, None));
    }

    #[test]
    fn a_name_that_is_not_known_is_no_component() {
        for name in ["@status", "@query-param", "@Method", "@", "", "Date", "a b", "a:"] {
            assert!(Component::named(name).is_none(), "{name}");
        }
        for (name, component) in DERIVED {
            assert_eq!((Component::named(name), component.name()), (Some(component.clone()), name));
        }
    }
}
