//! Numbers, names and columns as people read them, on a terminal and in pages.

use std::net::Ipv6Addr;
use std::path::Path;

use tidegate::Unit;
use tidegate::host::{visible, without_secrets};
use unicode_width::UnicodeWidthStr as _;

/// A number with separators: `1,250,000`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with the unit of a limit, if that has a name: `1,200 tokens`.
pub fn of_unit(count: u64, unit: Option<&Unit>) -> String {
    unit.map_or_else(|| number(count), |unit| format!("{} {unit}", number(count)))
}

/// `1 key`, `7 keys`, `2 primaries`.
pub fn counted(count: impl ToString, noun: &str) -> String {
    let count = count.to_string();
    match noun.strip_suffix('y') {
        _ if count == "1" => format!("{count} {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ => format!("{count} {noun}s"),
    }
}

/// Escapes a text from others, so that it does nothing to the terminal or to the machine that keeps the log. Services
/// of CI obey lines that begin with two colons, and texts after two number signs.
pub fn escaped(text: &str) -> String {
    let (address, prefix) = text.trim().split_once('/').unwrap_or((text.trim(), ""));
    if address.parse::<Ipv6Addr>().is_ok() && prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return visible(text).into_owned();
    }
    let mut escaped = String::with_capacity(text.len());
    let (mut last_but_one, mut last) = (' ', ' ');
    for c in visible(text).chars() {
        match c {
            ':' if last == ':' && last_but_one.is_whitespace() => escaped += "\\u{3a}",
            '#' if last == '#' => escaped += "\\u{23}",
            _ => escaped.push(c),
        }
        (last_but_one, last) = (last, c);
    }
    escaped
}

/// True if an argument may be the URL of a store, or a part of one.
pub fn may_be_url(argument: &str) -> bool {
    argument.contains("://") || argument.split_once(':').is_some_and(|(_, rest)| rest.contains('@'))
}

/// An argument as messages show it. If it is the URL of a store by mistake, it may have a password.
pub fn argument_text(argument: &str) -> String {
    if may_be_url(argument) { without_secrets(argument) } else { escaped(argument) }
}

/// A path as messages show it.
pub fn path_text(path: &Path) -> String {
    argument_text(&path.to_string_lossy())
}

/// The columns that a text takes.
pub fn columns_of(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that takes at most `columns` columns.
pub fn within(text: &str, columns: usize) -> &str {
    let beginnings = text.char_indices().map(|(at, c)| &text[..at + c.len_utf8()]);
    beginnings.take_while(|beginning| columns_of(beginning) <= columns).last().unwrap_or_default()
}

/// A text of exactly `columns` columns, filled with blanks or cut.
pub fn fitted(text: &str, columns: usize) -> String {
    let mut fitted = text.to_owned();
    if columns_of(text) > columns {
        fitted = within(text, columns.saturating_sub(1)).to_owned() + "…";
    }
    let rest = columns.saturating_sub(columns_of(&fitted));
    fitted + &" ".repeat(rest)
}

/// The rows of a table as lines. All cells of a column are as wide as the widest one.
pub fn columns<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| columns_of(&row.as_ref()[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, |row| row.as_ref().len())).map(width).collect();
    let line = |row: &Row| {
        let cells = row.as_ref().iter().zip(&widths).map(|(cell, width)| fitted(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        assert_eq!(["7", "1,000", "1,250,000"], [7, 1_000, 1_250_000].map(number).each_ref().map(String::as_str));
    }

    #[test]
    fn a_text_of_others_acts_on_nothing() {
        for (text, shown) in [
            ("login", "login"),
            ("api::login, a:b and #1", "api::login, a:b and #1"),
            ("::1", "::1"),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
            ("::/64   ", "::/64   "),
            ("::1/\n::error::x", ":\\u{3a}1/\\n::error::x"),
            ("::error::x", ":\\u{3a}error::x"),
            ("a ::error::x", "a :\\u{3a}error::x"),
            ("##[error]x ###", "#\\u{23}[error]x #\\u{23}\\u{23}"),
            ("a\n::b\u{1b}[2J\u{9b}2J\u{202e}", "a\\n::b\\u{1b}[2J\\u{9b}2J\\u{202e}"),
        ] {
            assert_eq!(escaped(text), shown);
            assert_eq!(escaped(shown), shown, "twice is once");
        }
    }

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        for (text, columns) in [("tide", 4), ("潮汐", 4), ("e\u{301}tat", 4), ("👍", 2), ("", 0)] {
            assert_eq!(columns_of(text), columns, "{text}");
            assert_eq!(columns_of(&fitted(text, 7)), 7, "{text}");
        }
        assert_eq!([5, 4, 3, 2].map(|columns| fitted("潮汐潮", columns)), ["潮汐…", "潮… ", "潮…", "… "]);
        assert_eq!(
            columns(&[["潮汐", "x"], ["tidal", "x"]].map(|row| row.map(str::to_owned))),
            ["潮汐   x", "tidal  x"]
        );
    }
}
