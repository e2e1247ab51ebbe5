//! Fields of a line, as the formats of traces share them.

/// The largest cost that a check may have.
const MAX_COST: u64 = (1 << 53) - 1;

/// A cost as a trace has it.
pub(super) fn cost(text: &str) -> Result<u64, String> {
    let number = text.trim().parse().ok().filter(|cost| (1..=MAX_COST).contains(cost));
    number.ok_or_else(|| format!("the cost {} is none: expected a whole number from 1 to 2^53 - 1", shown(text)))
}

/// The beginning of a text, in quotes.
pub(super) fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(60).collect();
    if beginning.len() < text.len() { format!("{beginning:?}…") } else { format!("{beginning:?}") }
}
