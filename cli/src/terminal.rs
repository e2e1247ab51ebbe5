//! Colours and width of the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::Ipv6Addr;
use std::path::Path;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use terminal_size::{Height, Width, terminal_size};
use unicode_width::UnicodeWidthStr as _;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// The width if the output is no terminal, and the largest width of text and pictures.
const DEFAULT_WIDTH: usize = 80;
const MAX_WIDTH: usize = 120;
const DEFAULT_HEIGHT: usize = 24;

/// Finds `--color` before the arguments are parsed, because help and errors are coloured, too.
pub(crate) fn colours_of(arguments: &[OsString]) -> ColorChoice {
    let mut texts = arguments.iter().filter_map(|argument| argument.to_str());
    while let Some(text) = texts.next() {
        let value = if text == "--color" { texts.next() } else { text.strip_prefix("--color=") };
        match value {
            Some("always") => return ColorChoice::Always,
            Some("never") => return ColorChoice::Never,
            _ if text == "--" => break,
            _ => {}
        }
    }
    ColorChoice::Auto
}

/// A text in a style. The text may come from others. The output drops the codes if there are no colours.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{}{style:#}", escaped(text))
}

/// Escapes a text from others, so that it does nothing to the terminal or to the machine that keeps the log. Services
/// of CI obey lines that begin with two colons, and texts after two number signs.
pub(crate) fn escaped(text: &str) -> String {
    let (address, prefix) = text.trim().split_once('/').unwrap_or((text.trim(), ""));
    if address.parse::<Ipv6Addr>().is_ok() && prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return tidegate::host::visible(text).into_owned();
    }
    let mut escaped = String::with_capacity(text.len());
    let (mut last_but_one, mut last) = (' ', ' ');
    for c in tidegate::host::visible(text).chars() {
        match c {
            ':' if last == ':' && last_but_one.is_whitespace() => escaped += "\\u{3a}",
            '#' if last == '#' => escaped += "\\u{23}",
            _ => escaped.push(c),
        }
        (last_but_one, last) = (last, c);
    }
    escaped
}

/// Escapes each line of a message.
pub(crate) fn escaped_lines(message: &str) -> String {
    message.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// The columns that a text takes.
pub(crate) fn columns_of(text: &str) -> usize {
    text.width()
}

/// A text of exactly `columns` columns, filled with blanks or cut.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let mut fitted = text.to_owned();
    if columns_of(text) > columns {
        fitted = within(text, columns.saturating_sub(1)).to_owned() + "…";
    }
    let rest = columns.saturating_sub(columns_of(&fitted));
    fitted + &" ".repeat(rest)
}

/// The beginning of a text that takes at most `columns` columns.
pub(crate) fn within(text: &str, columns: usize) -> &str {
    let beginnings = text.char_indices().map(|(at, c)| &text[..at + c.len_utf8()]);
    beginnings.take_while(|beginning| columns_of(beginning) <= columns).last().unwrap_or_default()
}

/// True if an argument may be the URL of a store, or a part of one.
pub(crate) fn may_be_url(argument: &str) -> bool {
    argument.contains("://") || argument.split_once(':').is_some_and(|(_, rest)| rest.contains('@'))
}

/// An argument as messages show it. If it is the URL of a store by mistake, it may have a password.
pub(crate) fn argument_text(argument: &str) -> String {
    if may_be_url(argument) { tidegate::host::without_secrets(argument) } else { escaped(argument) }
}

/// A path as messages show it.
pub(crate) fn path_text(path: &Path) -> String {
    argument_text(&path.to_string_lossy())
}

/// True if standard output is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdout().is_terminal()
}

/// The size of standard output, if that is a terminal.
fn size() -> Option<(Width, Height)> {
    is_interactive().then(terminal_size).flatten()
}

/// The columns of standard output.
pub(crate) fn width() -> usize {
    let columns = size().map(|(width, _)| usize::from(width.0));
    columns.unwrap_or(DEFAULT_WIDTH).clamp(40, MAX_WIDTH)
}

/// The rows of standard output.
pub(crate) fn screen_rows() -> usize {
    let rows = size().map(|(_, height)| usize::from(height.0));
    rows.unwrap_or(DEFAULT_HEIGHT).max(4) - 1
}

/// A bar of `columns` columns, filled by a share from 0 to 1.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    // A small share is never shown as empty, and a share below 1 never as full.
    let filled = match filled {
        0 if share > 0.0 => 1,
        all if all == columns && share < 1.0 => columns - 1,
        other => other,
    };
    format!("{}{}", "█".repeat(filled), "░".repeat(columns - filled))
}

/// The rows of a table as lines. All cells of a column are as wide as the widest one.
pub(crate) fn columns<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| columns_of(&row.as_ref()[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, |row| row.as_ref().len())).map(width).collect();
    let line = |row: &Row| {
        let cells = row.as_ref().iter().zip(&widths).map(|(cell, width)| fitted(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Cuts a text at blanks into lines of at most `columns` columns.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if columns_of(last) + 1 + columns_of(word) <= columns {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_little_as_something_and_nearly_all_as_not_all() {
        assert_eq!(bar(0.0, 4), "░░░░");
        assert_eq!(bar(0.001, 4), "█░░░");
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(0.999, 4), "███░");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(7.0, 4), "████");
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

    #[test]
    fn text_is_cut_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
