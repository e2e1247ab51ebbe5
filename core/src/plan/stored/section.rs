//! The sections of an annex. docs/adr/0028 describes the content of each kind.

use crate::algorithm::put;

/// Names the kinds of sections once, with their numbers and their names in the sources of the script.
macro_rules! sections {
    ($($name:ident = $number:literal,)+) => {
        $(pub(crate) const $name: u8 = $number;)+

        /// The names and numbers of the kinds.
        #[cfg(feature = "bench")]
        pub(crate) const SECTIONS: [(&str, u8); [$($number),+].len()] =
            [$((concat!("SECTION_", stringify!($name)), $name)),+];
    };
}

sections! {
    BLOCK = 1,
    TRACES = 2,
    GENERATION = 3,
    OTHER_LIMIT = 4,
    OVERRIDE = 5,
    LINE = 7,
    TURNS = 8,
    LEARNED = 9,
}

/// Bytes of a caller in the line: its number, how often it was overtaken, when it last asked, and since when it waits.
pub(crate) const IN_LINE: usize = 22;

/// Bytes of the length of a section.
const LENGTH: u8 = 2;

/// Each section of an annex: its kind and its content. Bytes that are no section end it with `None`.
pub(crate) fn sections(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8])>> {
    std::iter::from_fn(move || {
        let (kind, rest) = bytes.split_first()?;
        let section = rest.split_first_chunk::<{ LENGTH as usize }>().and_then(|(length, rest)| {
            let (content, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
            bytes = rest;
            Some((*kind, content))
        });
        if section.is_none() {
            bytes = &[];
        }
        Some(section)
    })
}

/// Appends a section. `write` appends its content.
pub(crate) fn put_section(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    put(out, 0, LENGTH);
    write(out);
    let length = (out.len() - at - usize::from(LENGTH)) as u16;
    out[at..at + usize::from(LENGTH)].copy_from_slice(&length.to_le_bytes());
}
