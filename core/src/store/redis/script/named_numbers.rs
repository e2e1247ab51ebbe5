//! The sources of the script name their numbers; the script that runs has the numbers themselves, since a local of Lua costs each
//! call that makes it. So the numbers of algorithms, operations and groupings stand once, in Rust.

use super::batch::GROUPINGS;
use super::instruction::OPERATIONS;
use crate::algorithm::{Stored, stored};

/// Each name in the sources, and what stands for it in the script.
fn names() -> Vec<(String, String)> {
    let stored = stored();
    let numbers = OPERATIONS.iter().chain(&GROUPINGS).map(|(name, number)| ((*name).to_owned(), number.to_string()));
    let algorithms = stored.iter().zip(1_u8..).map(|(stored, number)| (upper(stored.name), number.to_string()));
    let of_algorithms = |name: &str, text: fn(&Stored) -> String| {
        (name.to_owned(), format!("{{ {} }}", stored.iter().map(text).collect::<Vec<_>>().join(", ")))
    };
    let tables = [
        of_algorithms("FIELDS_OF_ALGORITHMS", |stored| format!("'{}'", stored.field_codes())),
        of_algorithms("ITEMS_OF_ALGORITHMS", |stored| stored.item.to_string()),
        // Of units that go back without a Decision, and of those that go back by one.
        of_algorithms("COUNTS_REFUNDS", |stored| stored.counts_refunds.0.to_string()),
        of_algorithms("COUNTS_UNDONE", |stored| stored.counts_refunds.1.to_string()),
    ];
    algorithms.chain(numbers).chain(tables).collect()
}

/// `FixedWindow` as `FIXED_WINDOW`.
fn upper(name: &str) -> String {
    let mut upper = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !upper.is_empty() {
            upper.push('_');
        }
        upper.push(letter.to_ascii_uppercase());
    }
    upper
}

/// The text with numbers in place of their names. Comments stay as they are.
pub(super) fn numbered(source: &str) -> String {
    let names = names();
    let mut text = String::with_capacity(source.len());
    for line in source.split_inclusive('\n') {
        let (code, comment) = line.split_at(line.find("--").unwrap_or(line.len()));
        for word in code.split_inclusive(|letter: char| !is_of_word(letter)) {
            let end = word.trim_end_matches(|letter| !is_of_word(letter)).len();
            let (word, rest) = word.split_at(end);
            let number = names.iter().find(|(name, _)| name == word).map_or(word, |(_, number)| number);
            text.push_str(number);
            text.push_str(rest);
        }
        text.push_str(comment);
    }
    text
}

const fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Algorithm;

    #[test]
    fn names_become_numbers_but_for_those_in_comments() {
        let text =
            "if algorithm == GCRA then return MY_GCRA, GCRAS end -- GCRA\nlocal CHECK_ALL, b = CHECK, SLIDING_LOG";
        let expected = "if algorithm == 7 then return MY_GCRA, GCRAS end -- GCRA\nlocal CHECK_ALL, b = 1, 3";
        assert_eq!(numbered(text), expected);
    }

    #[test]
    fn the_numbers_of_algorithms_are_those_of_their_tags() {
        let (names, all): (Vec<_>, Vec<_>) = stored()
            .iter()
            .zip(Algorithm::ALL)
            .map(|(stored, algorithm)| (stored.name, format!("{algorithm:?}")))
            .unzip();
        assert_eq!(names, all);
        assert_eq!(stored().len(), Algorithm::ALL.len());
    }

    #[test]
    fn no_bare_number_of_an_algorithm_operation_or_grouping_stands_in_a_source() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/script/lua");
        for file in std::fs::read_dir(folder).expect("the folder of the sources") {
            let path = file.expect("a source").path();
            let source = std::fs::read_to_string(&path).expect("a source");
            for line in source.lines().map(|line| line.split("--").next().unwrap_or_default()) {
                for subject in ["algorithm", "operation", "grouping"] {
                    for compared in ["==", "~=", "<", ">", "<=", ">="] {
                        let rest = line.split_once(&format!("{subject} {compared} ")).map_or("", |(_, rest)| rest);
                        assert!(!rest.starts_with(|first: char| first.is_ascii_digit()), "{}: {line}", path.display());
                    }
                }
                let keyed = line.trim_start().strip_prefix('[').unwrap_or_default();
                assert!(!keyed.starts_with(|first: char| first.is_ascii_digit()), "{}: {line}", path.display());
            }
        }
    }
}
