//! Colours and width of the terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use terminal_size::{Height, Width, terminal_size};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// The width where the output is no terminal, and the widest that text and pictures become.
const DEFAULT_WIDTH: usize = 80;
const MAX_WIDTH: usize = 120;
const DEFAULT_HEIGHT: usize = 24;

/// What `--color` says, before the arguments are parsed: help and mistakes are coloured too.
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

/// A text in a style. The output drops the codes where there are no colours.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A text of others, of which nothing reaches the terminal but visible characters.
pub(crate) fn escaped(text: &str) -> String {
    tidegate::host::visible(text).into_owned()
}

/// A path as messages show it.
pub(crate) fn path_text(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Whether standard output is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdout().is_terminal()
}

/// The size of standard output, where that is a terminal.
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

/// A bar of so many columns that is filled by a share of 0 to 1.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    // Something is never shown as nothing, and not quite everything never as everything.
    let filled = match filled {
        0 if share > 0.0 => 1,
        all if all == columns && share < 1.0 => columns - 1,
        other => other,
    };
    format!("{}{}", "█".repeat(filled), "░".repeat(columns - filled))
}

/// Rows of a table, a line each: the cells of a column are as wide as the widest.
pub(crate) fn columns<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, |row| row.as_ref().len())).map(width).collect();
    let line = |row: &Row| {
        let cells = row.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A text cut into lines of at most so many columns, at blanks.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= columns {
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
    fn text_is_cut_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
