//! Slips of the pen: which known name somebody may have meant.

/// Those of `known` that are near to what was written.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let lower = given.to_lowercase();
    known.into_iter().filter(|known| is_near(&lower, known)).collect()
}

/// Whether somebody who writes `given` may mean `known`: a part of it, or two slips away from it.
fn is_near(given: &str, known: &str) -> bool {
    let part = given.len() >= 3 && (known.contains(given) || given.contains(known));
    part || distance(given, known) <= 2.min(known.len() / 2)
}

/// How many characters have to be added, dropped or changed to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // The distances from what was read of `from` so far to each beginning of `to`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (read, letter) in from.chars().enumerate() {
        let mut next = vec![read + 1];
        let mut left = read + 1;
        for (above, target) in row.windows(2).zip(&to) {
            let [diagonal, above] = *above else { continue };
            left = (diagonal + usize::from(letter != *target)).min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_slips() {
        for (from, to, slips) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "ac", 1), ("slck", "slack", 1), ("x", "", 1)]
        {
            assert_eq!(distance(from, to), slips, "{from} {to}");
        }
    }
}
