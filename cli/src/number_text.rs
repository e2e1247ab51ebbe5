//! Numbers, as people write and read them.

use crate::time_text;

/// Bytes: `88 bytes`, `1.5 kB`, `4.4 GB`.
pub(crate) fn bytes(count: f64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1_000.0 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} bytes") } else { format!("{value:.1} {}", units[unit]) }
}

/// Parses a count such as `50M`, `1.5k` or `2_000`.
pub(crate) fn count(text: &str) -> Result<f64, String> {
    let text = text.trim().replace(['_', ','], "");
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G' | 'b' | 'B')) => (&text[..at], 1e9),
        _ => (text.as_str(), 1.0),
    };
    match digits.parse::<f64>() {
        Ok(value) if value > 0.0 && value * factor <= 1e15 => Ok(value * factor),
        _ => Err("write a count as in 50M, 200k or 1500".to_owned()),
    }
}

/// Parses a rate per second: `1M/s`, `1.5k/minute`, `500`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let wrong = |_| format!("{text:?} is not a rate: give a number and a time, such as 20/s, 1.5k/minute or 1M/s");
    let (amount, period) = text.split_once('/').unwrap_or((text, "s"));
    Ok(count(amount).map_err(wrong)? / time_text::parse(period).map_err(wrong)?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown() {
        assert_eq!(["88 bytes", "1.5 kB", "4.4 GB"], [88.0, 1_500.0, 4.4e9].map(bytes).each_ref().map(String::as_str));
    }

    #[test]
    fn amounts_are_read() {
        assert_eq!(count("50M"), Ok(50e6));
        assert_eq!(count("1.5k"), Ok(1_500.0));
        assert_eq!(rate("1M/s"), Ok(1e6));
        assert_eq!(rate("30k/minute"), Ok(500.0));
        assert_eq!(rate("1.5k/minute"), Ok(25.0));
        assert_eq!(rate("500"), Ok(500.0));
        for text in ["", "M", "-1", "0", "0/s", "many", "1e40"] {
            assert!(count(text).is_err() && rate(text).is_err(), "{text}");
        }
        assert!(rate("5/fortnight").is_err());
    }
}
