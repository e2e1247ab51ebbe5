//! From offsets to lines and columns.

use super::tree::Spot;

/// One mark every so many characters: lookups stay cheap in a file of one very long line.
const STEP: usize = 1_024;

struct Mark {
    offset: usize,
    spot: Spot,
}

/// Measures one text.
pub(super) struct Ruler<'a> {
    text: &'a str,
    marks: Vec<Mark>,
}

impl<'a> Ruler<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut marks = Vec::with_capacity(text.len() / STEP + 1);
        let mut spot = Spot { line: 1, column: 1 };
        for (index, (offset, c)) in text.char_indices().enumerate() {
            if index % STEP == 0 {
                marks.push(Mark { offset, spot });
            }
            spot = after(spot, c);
        }
        Self { text, marks }
    }

    pub(super) const fn text(&self) -> &'a str {
        self.text
    }

    /// Where the character at a byte offset stands; the end for offsets beyond it.
    pub(super) fn spot(&self, offset: usize) -> Spot {
        let index = self.marks.partition_point(|mark| mark.offset <= offset).saturating_sub(1);
        let Some(mark) = self.marks.get(index) else { return Spot { line: 1, column: 1 } };
        self.text[mark.offset..]
            .char_indices()
            .take_while(|(at, _)| mark.offset + at < offset)
            .fold(mark.spot, |spot, (_, c)| after(spot, c))
    }

    /// The byte offset of the character of that number, from 0.
    pub(super) fn offset_of_char(&self, number: usize) -> usize {
        let Some(mark) = self.marks.get(number / STEP) else { return self.text.len() };
        let rest = &self.text[mark.offset..];
        mark.offset + rest.char_indices().nth(number % STEP).map_or(rest.len(), |(at, _)| at)
    }

    /// Where the first character of a text stands that was read at an offset, when the file holds it as it is.
    pub(super) fn body(&self, offset: usize, text: &str) -> Option<Spot> {
        let rest = self.text.get(offset..)?;
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quotes = quote.map_or(0, |quote| rest.chars().take(3).take_while(|c| *c == quote).count());
        // Three quotes open a long text of TOML, one a usual one, and two are an empty one.
        let skip = if quotes == 2 { 1 } else { quotes };
        (!text.contains('\n') && rest.get(skip..)?.starts_with(text)).then(|| self.spot(offset + skip))
    }
}

fn after(spot: Spot, c: char) -> Spot {
    if c == '\n' { Spot { line: spot.line + 1, column: 1 } } else { Spot { column: spot.column + 1, ..spot } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_counting() {
        let text = format!("é\n{}\n\"x\"", "ü;".repeat(3_000));
        let ruler = Ruler::new(&text);
        let mut spot = Spot { line: 1, column: 1 };
        for (number, (offset, c)) in text.char_indices().enumerate() {
            assert_eq!(ruler.spot(offset), spot);
            assert_eq!(ruler.offset_of_char(number), offset);
            spot = after(spot, c);
        }
        assert_eq!(ruler.spot(text.len()), spot);
        assert_eq!(ruler.spot(usize::MAX), spot);
        assert_eq!(ruler.offset_of_char(usize::MAX), text.len());
        assert_eq!(ruler.body(text.len() - 3, "x"), Some(Spot { line: 3, column: 2 }));
        assert_eq!(Ruler::new("").spot(0), Spot { line: 1, column: 1 });
    }
}
