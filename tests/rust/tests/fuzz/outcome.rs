//! The kind of outcome of an input. Inputs of a new kind are mutated further.

/// The shape of a message, without its numbers and the parts of the input that it shows.
pub(crate) fn shape(message: &str) -> String {
    let mut shape = String::new();
    let (mut quote, mut in_number) = (None, false);
    let mut characters = message.lines().next().unwrap_or_default().chars();
    while let Some(c) = characters.next() {
        if c == '\\' {
            // A quote after it ends nothing.
            characters.next();
        } else if quote == Some(c) {
            quote = None;
        } else if quote.is_none() && matches!(c, '`' | '"') {
            quote = Some(c);
        } else if quote.is_none() {
            if !(c.is_ascii_digit() && in_number) {
                shape.push(if c.is_ascii_digit() { '0' } else { c });
            }
            in_number = c.is_ascii_digit();
        }
    }
    shape
}

/// A number as its order of magnitude.
pub(crate) fn magnitude(number: u64) -> u32 {
    (64 - number.leading_zeros()) / 8
}
