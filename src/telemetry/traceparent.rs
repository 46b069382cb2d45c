//! The header by which traces go from one process to the next: <https://www.w3.org/TR/trace-context/>.

use std::fmt;

use http::HeaderMap;

/// A W3C trace context, as the header `traceparent` has it: which trace, and which span of it is the parent of what is done
/// now.
///
/// ```
/// use countersign::telemetry::Traceparent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = Traceparent::parse(text).expect("a trace context");
/// assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
/// assert_eq!(context.parent_id(), "b7ad6b7169203331");
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), text);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Traceparent(Box<str>);

impl Traceparent {
    /// Reads a trace context. `None` for what is none: any mistake makes it one that nobody may go by.
    ///
    /// Of a later version than 00, what it has in common with that is taken.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let mut parts = text.splitn(5, '-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_form = hex(version, 2) && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
        let is_named = trace.bytes().any(|byte| byte != b'0') && parent.bytes().any(|byte| byte != b'0');
        let is_known = version != "ff" && (version != "00" || parts.next().is_none());
        (is_form && is_named && is_known).then(|| Self(format!("00-{trace}-{parent}-{flags}").into()))
    }

    /// That of a request. `None` where there is none, or more than one.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all("traceparent").iter();
        let only = all.next().filter(|_| all.next().is_none())?;
        Self::parse(only.to_str().ok()?.trim())
    }

    /// The trace: 32 hex digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// The span that it comes from: 16 hex digits.
    #[must_use]
    pub fn parent_id(&self) -> &str {
        self.0.get(36..52).unwrap_or_default()
    }

    /// Whether who began the trace keeps it.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        let flags = self.0.get(53..).and_then(|flags| u8::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & 1 == 1)
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_not_wholly_a_trace_context_is_none() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
            "00-é0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(Traceparent::parse(text), None, "{text:?}");
        }
        assert!(!Traceparent::parse(&GOOD.replace("-01", "-00")).expect("a context").is_sampled());
        let later = GOOD.replacen("00-", "cc-", 1) + "-what-comes-later";
        assert_eq!(Traceparent::parse(&later).expect("a context").to_string(), GOOD);
    }

    #[test]
    fn a_request_with_two_of_them_has_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(Traceparent::of(&headers), None);
        headers.append("traceparent", HeaderValue::from_static(GOOD));
        assert_eq!(Traceparent::of(&headers).expect("a context").to_string(), GOOD);
        headers.append("traceparent", HeaderValue::from_static(GOOD));
        assert_eq!(Traceparent::of(&headers), None);
    }
}
