//! Lines and columns from offsets.

use super::tree::Position;

/// Characters between two checkpoints. They keep lookups cheap in a file of one very long line.
const CHECKPOINT_DISTANCE: usize = 1_024;

struct Checkpoint {
    offset: usize,
    position: Position,
}

/// The lines of one text.
pub(super) struct LineIndex<'a> {
    text: &'a str,
    checkpoints: Vec<Checkpoint>,
}

impl<'a> LineIndex<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut checkpoints = Vec::with_capacity(text.len() / CHECKPOINT_DISTANCE + 1);
        let mut position = Position { line: 1, column: 1 };
        for (index, (offset, c)) in text.char_indices().enumerate() {
            if index % CHECKPOINT_DISTANCE == 0 {
                checkpoints.push(Checkpoint { offset, position });
            }
            position = after(position, c);
        }
        Self { text, checkpoints }
    }

    pub(super) const fn text(&self) -> &'a str {
        self.text
    }

    /// The position of the character at a byte offset. Offsets beyond the text give its end.
    pub(super) fn position(&self, offset: usize) -> Position {
        let index = self.checkpoints.partition_point(|checkpoint| checkpoint.offset <= offset).saturating_sub(1);
        let Some(checkpoint) = self.checkpoints.get(index) else { return Position { line: 1, column: 1 } };
        self.text[checkpoint.offset..]
            .char_indices()
            .take_while(|(at, _)| checkpoint.offset + at < offset)
            .fold(checkpoint.position, |position, (_, c)| after(position, c))
    }

    /// Limits a position to the text, with the line ends of YAML: at most the end of its line, or of the text. A parser
    /// may be further if a text ends too early, and may count the bytes of a line.
    pub(super) fn within(&self, position: Position) -> Position {
        let lines = self.text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'));
        let (mut number, mut columns) = (0, 0);
        for line in lines.take(position.line) {
            (number, columns) = (number + 1, line.chars().count() + 1);
        }
        let column = if number < position.line { columns } else { position.column.min(columns) };
        Position { line: number, column }
    }

    /// The byte offset of a character by its number, from 0.
    pub(super) fn offset_of_char(&self, number: usize) -> usize {
        let Some(checkpoint) = self.checkpoints.get(number / CHECKPOINT_DISTANCE) else { return self.text.len() };
        let rest = &self.text[checkpoint.offset..];
        checkpoint.offset + rest.char_indices().nth(number % CHECKPOINT_DISTANCE).map_or(rest.len(), |(at, _)| at)
    }

    /// The position of the first character of a text that begins at an offset, if the file holds it verbatim in one line.
    pub(super) fn verbatim(&self, offset: usize, text: &str) -> Option<Position> {
        let rest = self.text.get(offset..)?;
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quotes = quote.map_or(0, |quote| rest.chars().take(3).take_while(|c| *c == quote).count());
        // Three quotes begin a multi-line text of TOML, one begins a usual text, and two are an empty text.
        let skip = if quotes == 2 { 1 } else { quotes };
        (!text.contains('\n') && rest.get(skip..)?.starts_with(text)).then(|| self.position(offset + skip))
    }
}

fn after(position: Position, c: char) -> Position {
    if c == '\n' {
        Position { line: position.line + 1, column: 1 }
    } else {
        Position { column: position.column + 1, ..position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_counting() {
        let text = format!("é\n{}\n\"x\"", "ü;".repeat(3_000));
        let lines = LineIndex::new(&text);
        let mut position = Position { line: 1, column: 1 };
        for (number, (offset, c)) in text.char_indices().enumerate() {
            assert_eq!(lines.position(offset), position);
            assert_eq!(lines.offset_of_char(number), offset);
            position = after(position, c);
        }
        assert_eq!(lines.position(text.len()), position);
        assert_eq!(lines.position(usize::MAX), position);
        assert_eq!(lines.offset_of_char(usize::MAX), text.len());
        assert_eq!(lines.verbatim(text.len() - 3, "x"), Some(Position { line: 3, column: 2 }));
        assert_eq!(LineIndex::new("").position(0), Position { line: 1, column: 1 });
    }
}
