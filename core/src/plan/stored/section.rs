//! The sections of an annex. docs/adr/0028 has what each kind contains.

use crate::algorithm::put;

pub(crate) const BLOCK: u8 = 1;
pub(crate) const TRACES: u8 = 2;
pub(crate) const GENERATION: u8 = 3;
pub(crate) const OTHER_LIMIT: u8 = 4;
pub(crate) const OVERRIDE: u8 = 5;
/// A line in an older form, which ended within a second.
pub(crate) const OLD_LINE: u8 = 6;
pub(crate) const LINE: u8 = 7;
pub(crate) const TURNS: u8 = 8;
pub(crate) const LEARNED: u8 = 9;

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

/// Appends a section, whose content `write` appends.
pub(crate) fn put_section(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    put(out, 0, LENGTH);
    write(out);
    let length = (out.len() - at - usize::from(LENGTH)) as u16;
    out[at..at + usize::from(LENGTH)].copy_from_slice(&length.to_le_bytes());
}
