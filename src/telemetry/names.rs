//! Keeps labels bounded: each name that is told apart is a time series in somebody's database, for good.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use crate::Name;

/// How many sources, consumers and endpoints each are told apart in one process. What comes later has an empty label, which no
/// name is.
pub const MAX_NAMES: usize = 500;

/// The names of one kind.
#[derive(Debug, Default)]
pub(super) struct Names(RwLock<Option<HashSet<Name>>>);

impl Names {
    pub(super) const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// The name, if it is among those that are told apart, or may still become one.
    pub(super) fn told<'a>(&self, name: &'a Name) -> &'a str {
        if self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|known| known.contains(name)) {
            return name.as_str();
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if known.contains(name) || (known.len() < MAX_NAMES && known.insert(name.clone())) {
            return name.as_str();
        }
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_are_told_apart_and_the_rest_are_one() {
        let names = Names::new();
        let all: Vec<_> = (0..MAX_NAMES + 50).map(|n| Name::new(&format!("shop-{n}")).expect("a name")).collect();
        for _ in 0..2 {
            let told: HashSet<_> = all.iter().map(|name| names.told(name).to_owned()).collect();
            assert_eq!(told.len(), MAX_NAMES + 1);
            assert!(told.contains("shop-0") && told.contains(""));
        }
    }
}
