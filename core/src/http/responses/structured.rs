//! Lists and dictionaries of structured fields (RFC 9651), as far as the fields of limits need them.

use std::borrow::Cow;

/// A member of a list or of a dictionary.
pub(super) struct StructuredMember<'a> {
    /// Its key, in a dictionary.
    pub(super) key: Option<&'a str>,
    pub(super) value: Cow<'a, str>,
    parameters: Vec<(&'a str, Cow<'a, str>)>,
}

impl StructuredMember<'_> {
    /// The parameter that our own responses write like this, with its separators.
    pub(super) fn parameter(&self, written: &str) -> Option<&str> {
        let name = written.trim_matches([';', '=', '"']);
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }
}

/// The members of a field. `None` for a text that is neither a list nor a dictionary.
pub(super) fn members(text: &str) -> Option<Vec<StructuredMember<'_>>> {
    let mut scanner = Scanner { rest: text };
    let mut members = Vec::new();
    scanner.blanks();
    while !scanner.rest.is_empty() {
        let mut value = scanner.value()?;
        let mut key = None;
        if let (Cow::Borrowed(name), true) = (&value, scanner.skip('=')) {
            key = Some(*name);
            value = scanner.value()?;
        }
        let mut parameters = Vec::new();
        while scanner.skip(';') {
            scanner.blanks();
            let name = scanner.word()?;
            let value = if scanner.skip('=') { scanner.value()? } else { Cow::Borrowed("") };
            parameters.push((name, value));
        }
        members.push(StructuredMember { key, value, parameters });
        scanner.blanks();
        if !scanner.rest.is_empty() && !scanner.skip(',') {
            return None;
        }
        scanner.blanks();
    }
    Some(members)
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    /// Reads this character and the blanks before it, if it comes next. Returns true if it does.
    fn skip(&mut self, expected: char) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t']).strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A number, a token or a key.
    fn word(&mut self) -> Option<&'a str> {
        let end = self.rest.find([';', ',', '=', '"', ' ', '\t']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn value(&mut self) -> Option<Cow<'a, str>> {
        if self.skip('"') {
            return self.string().map(Cow::Owned);
        }
        if let Some(bytes) = self.rest.strip_prefix(':') {
            let (bytes, rest) = bytes.split_once(':')?;
            self.rest = rest;
            return Some(Cow::Owned(bytes.to_owned()));
        }
        self.word().map(Cow::Borrowed)
    }

    /// Reads the rest of a string after its first quote.
    fn string(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut characters = self.rest.chars();
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => text.push(characters.next()?),
                c => text.push(c),
            }
        }
        self.rest = characters.as_str();
        Some(text)
    }
}
