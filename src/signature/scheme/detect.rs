//! Which scheme a request looks like.

use http::{HeaderMap, Method};

use super::{Algorithm, Head, Scheme};

impl Scheme {
    /// The presets that a request with these headers may be signed with, the likeliest first.
    ///
    /// A guess from names and forms, for messages to people: nothing is proven by it, and nothing should be accepted
    /// because of it. Many senders share one way to sign; schemes without a signature in a header are never among them.
    ///
    /// ```
    /// # use countersign::Scheme;
    /// let headers = http::HeaderMap::from_iter([(
    ///     http::HeaderName::from_static("stripe-signature"),
    ///     http::HeaderValue::from_static("t=1,v1=00"),
    /// )]);
    /// assert_eq!(Scheme::detect(&headers)[0].name(), "stripe");
    /// ```
    #[must_use]
    pub fn detect(headers: &HeaderMap) -> Vec<Self> {
        let mut found: Vec<_> =
            Self::all().filter_map(|scheme| scheme.resemblance(headers).map(|rank| (rank, scheme))).collect();
        // In the order of the table where nothing tells them apart.
        found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        let best = found.first().map(|((telling, well_formed, _), _)| (*telling, *well_formed));
        found.retain(|((telling, well_formed, _), _)| Some((*telling, *well_formed)) == best);
        found.into_iter().map(|(_, scheme)| scheme).collect()
    }

    /// Whether one of its signatures' headers is there.
    #[must_use]
    pub fn has_signature_in(&self, headers: &HeaderMap) -> bool {
        headers.keys().any(|name| self.is_signature_header(name))
    }

    /// How much a request looks like one of this scheme, `None` if it does not: whether its header tells anything, whether
    /// all of them can be read, and how many there are.
    fn resemblance(&self, headers: &HeaderMap) -> Option<(bool, bool, usize)> {
        if !self.has_signature_in(headers) {
            return None;
        }
        let head = Head::new(&Method::POST, "", headers);
        let well_formed = self.check_constants(headers).is_ok()
            && match &self.form {
                Some(form) => form.open(&head).is_ok(),
                None => self.read(&head).is_ok(),
            };
        // A token's header may hold anything, and every API has an `Authorization`.
        let telling = self.algorithm != Algorithm::Token;
        Some((telling, well_formed, self.headers().filter(|name| headers.contains_key(*name)).count()))
    }
}
