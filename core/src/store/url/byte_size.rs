//! An amount of memory as a person writes it: `64MB`, `1GiB`, `1.5 GB`, `1048576`.

use crate::error::{Error, Result};

/// The units and their bytes. Without an `i` they count thousands, as the makers of disks and networks do.
const UNITS: [(&[&str], u64); 9] = [
    (&["", "b"], 1),
    (&["k", "kb"], 1_000),
    (&["m", "mb"], 1_000_000),
    (&["g", "gb"], 1_000_000_000),
    (&["t", "tb"], 1_000_000_000_000),
    (&["ki", "kib"], 1 << 10),
    (&["mi", "mib"], 1 << 20),
    (&["gi", "gib"], 1 << 30),
    (&["ti", "tib"], 1 << 40),
];

/// Reads a text as a number of bytes.
///
/// # Errors
/// `config_invalid` with the option and the range. The text is not shown: it may be a part of a password.
pub(super) fn parse(option: &str, text: &str, least: usize) -> Result<usize> {
    let refused = |why: String| Error::config(format!("{option} {why}"));
    let digits = text.trim().find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(names, _)| names.contains(&&*unit)).map(|(_, factor)| *factor);
    let bytes = factor.and_then(|factor| product(number, factor)).ok_or_else(|| {
        refused("is not an amount of memory: give bytes, or a number with a unit, as in 64MB, 1GB or 512MiB".to_owned())
    })?;
    usize::try_from(bytes).ok().filter(|bytes| (least..=isize::MAX as usize).contains(bytes)).ok_or_else(|| {
        refused(format!("is out of range: it must be at least {} kB and fit into memory", least / 1_000))
    })
}

/// A decimal number times a factor, in whole units.
fn product(number: &str, factor: u64) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 20 || part.len() > 9 || number.ends_with('.') {
        return None;
    }
    let (whole, factor) = (whole.parse::<u128>().ok()?, u128::from(factor));
    let thousandths =
        if part.is_empty() { 0 } else { part.parse::<u128>().ok()? * factor / 10_u128.pow(part.len() as u32) };
    Some(whole * factor + thousandths)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_amount_is_read_as_a_person_means_it() {
        for (text, bytes) in [
            ("1GB", 1_000_000_000),
            ("1gb", 1_000_000_000),
            ("64MB", 64_000_000),
            ("64M", 64_000_000),
            ("64 MB", 64_000_000),
            ("1.5GB", 1_500_000_000),
            ("512KiB", 524_288),
            ("1GiB", 1 << 30),
            ("2Gi", 2 << 30),
            ("0.25MiB", 262_144),
            ("1048576", 1_048_576),
            ("1048576B", 1_048_576),
        ] {
            assert_eq!(parse("max_bytes", text, 1_000).expect(text), bytes, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_to_give() {
        for text in
            ["", "GB", "1XB", "-1GB", "1e9", "1,5GB", "1..5GB", "1.GB", ".5GB", "1 G B", "0x10", "one", "\u{661}GB"]
        {
            let error = parse("max_bytes", text, 1_000).expect_err(text);
            assert_eq!(error.code(), "config_invalid", "{text}");
            assert!(error.to_string().contains("not an amount of memory"), "{text}: {error}");
        }
        for text in ["0", "999", "0.5kB", "99999999999TB", "9999999999999999999GB"] {
            let error = parse("max_bytes", text, 1_000).expect_err(text).to_string();
            assert!(error.contains("at least 1 kB"), "{text}: {error}");
        }
    }
}
