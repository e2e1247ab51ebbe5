//! "Did you mean": the allowed word that is nearest to a mistyped word.

/// Longer words are no typing mistakes, and comparing them would cost time.
const MAX_LENGTH: usize = 32;

/// Returns `; did you mean `x`?`, or nothing if no allowed word is near.
pub(crate) fn did_you_mean<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, allowed).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// The nearest allowed word, if one is near. The first of equally near words wins, so list the common spelling first.
pub fn nearest<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = normalized(word)?;
    let mut best: Option<(usize, &str)> = None;
    for candidate in allowed {
        let Some(normalized) = normalized(candidate) else { continue };
        let (distance, most) = difference(&word, &normalized);
        if distance <= most && distance < normalized.len() && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The distance of a word from an allowed one, and the largest allowed distance.
fn difference(word: &[char], allowed: &[char]) -> (usize, usize) {
    // "fixed" for "fixed-window" and "proxies" for "trusted_proxies" are far in characters but near in meaning.
    if word.len() >= 3 && allowed.starts_with(word) {
        return (1, 1);
    }
    if word.len() >= 4 && allowed.windows(word.len()).any(|part| part == word) {
        return (2, 2);
    }
    let (shorter, alike) =
        (word.len().min(allowed.len()), word.iter().zip(allowed).take_while(|(a, b)| a == b).count());
    // "on_deny" for "on_denied" is another form of a word.
    let most = if alike >= 4 && 3 * alike >= 2 * word.len() { shorter / 2 } else { shorter / 3 };
    (distance(word, allowed), most.max(1))
}

/// In lower case and without separators, because languages spell names differently. `None` if it is too long.
fn normalized(word: &str) -> Option<Vec<char>> {
    if word.len() > MAX_LENGTH {
        return None;
    }
    Some(word.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect())
}

/// The Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == &b[j - 1] && a[i - 1] == *to {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_allowed_word_is_suggested() {
        let words = ["fixed-window", "gcra", "on_store_error", "minute", "month", "trustedProxies"];
        assert_eq!(nearest("gcar", words), Some("gcra"));
        assert_eq!(nearest("fixed", words), Some("fixed-window"));
        assert_eq!(nearest("on-store-eror", words), Some("on_store_error"));
        assert_eq!(nearest("onStoreEror", words), Some("on_store_error"));
        assert_eq!(nearest("on_store_errors_in", words), Some("on_store_error"));
        assert_eq!(nearest("proxies", words), Some("trustedProxies"));
        assert_eq!(nearest("MINUET", words), Some("minute"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest(&"m".repeat(1000), words), None);
    }
}
