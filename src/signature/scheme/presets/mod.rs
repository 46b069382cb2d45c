//! The providers: a row each, in families by what they sign.

#[cfg(feature = "asymmetric")]
mod asymmetric;
mod body;
#[cfg(feature = "rfc9421")]
mod canonical;
mod standard;
mod timed;
mod unusual;
mod url;

use super::preset::Preset;
pub(super) use body::{GITHUB, GITHUB_SHA1, SHOPIFY};
#[cfg(feature = "rfc9421")]
pub(super) use canonical::RFC9421;
pub(super) use standard::{ENVELOPE, STANDARD, SVIX};
pub(super) use timed::{SLACK, STRIPE};

/// Every preset, in the order in which they are listed to people.
pub(super) fn all() -> impl Iterator<Item = &'static Preset> {
    FAMILIES.iter().copied().flatten()
}

const FAMILIES: &[&[Preset]] = &[
    standard::ROWS,
    timed::ROWS,
    body::ROWS,
    url::ROWS,
    #[cfg(feature = "asymmetric")]
    asymmetric::ROWS,
    unusual::ROWS,
    #[cfg(feature = "rfc9421")]
    canonical::ROWS,
];

/// The names of those that need the feature `asymmetric`.
pub(super) const ASYMMETRIC: &[&str] = &["standard-ed25519", "discord", "sendgrid", "plaid"];

#[cfg(all(test, feature = "asymmetric"))]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_the_feature_is_told_so_of_each_scheme_that_needs_it() {
        let names: Vec<&str> = asymmetric::ROWS.iter().map(|preset| preset.name).collect();
        assert_eq!(names, ASYMMETRIC);
    }
}
