//! Unquoted scalars: null, booleans and numbers.

use super::tree::Value;

/// The value of an unquoted scalar by the core schema of YAML 1.2. `None` for a text.
pub(super) fn plain_scalar(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        ".inf" | ".Inf" | ".INF" if text.starts_with('-') => return Some(Value::Float(f64::NEG_INFINITY)),
        ".inf" | ".Inf" | ".INF" => return Some(Value::Float(f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" if unsigned.len() == text.len() => return Some(Value::Float(f64::NAN)),
        _ => {}
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let plausible = digits.starts_with(|c: char| c.is_digit(radix));
            return plausible.then(|| i128::from_str_radix(digits, radix).ok().map(Value::Integer)).flatten();
        }
    }
    let digits = |c: char| c.is_ascii_digit();
    if !unsigned.starts_with(|c: char| digits(c) || c == '.') || !unsigned.contains(digits) {
        return None;
    }
    // Rust reads the remaining forms as the core schema does: 1, 1.5, .5, 1., 1e3, 1.5E-3.
    text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float)).ok()
}
