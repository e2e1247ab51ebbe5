//! What is stored of a limit, and what the script gets of it.

use super::{Limit, LimitRule, MAX_SAFE_INTEGER};

/// Bytes of a moment, and of each number in a list.
pub(crate) const MOMENT_WIDTH: u8 = 7;
/// Bytes of a count in the full form of a value.
pub(crate) const FULL_WIDTH: u8 = 7;

/// A field of a stored limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// A moment, or another number that has nothing to do with the limit's count.
    Moment,
    /// A number of units.
    Count,
    /// The length of the limit's list, in bytes.
    Length,
}

/// What of an algorithm the script has to know, whichever limit it is of.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Stored {
    /// Its name in the table of algorithms.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
    /// The bytes of an item in its list; 0 where it has none.
    pub(crate) item: u8,
    /// Whether refunds are counted: those without a Decision, and those by one.
    pub(crate) counts_refunds: (bool, bool),
}

#[cfg(test)]
impl Stored {
    pub(super) fn of<R: StoredRule>(name: &'static str) -> Self {
        Self { name, fields: R::FIELDS, item: R::ITEM * MOMENT_WIDTH, counts_refunds: R::COUNTS_REFUNDS }
    }

    /// A letter for each field: M, a moment; C, a count; L, the length of the list.
    pub(crate) fn field_codes(&self) -> String {
        let letter = |field: &Field| match field {
            Field::Moment => 'M',
            Field::Count => 'C',
            Field::Length => 'L',
        };
        self.fields.iter().map(letter).collect()
    }
}

/// A limit of one algorithm, as Redis has it.
pub(super) trait StoredRule: LimitRule {
    /// The numbers of an item in the list, each of as many bytes as a moment.
    const ITEM: u8 = 0;
    /// Its bytes.
    const ITEM_BYTES: usize = Self::ITEM as usize * MOMENT_WIDTH as usize;

    /// The fields of a stored limit, in order; a meter whose interval is no whole number of microseconds has one more count.
    const FIELDS: &'static [Field];

    /// The bytes of its list when all its units are in use, and the most that a reply may have of it.
    fn list_bytes(_limit: &Limit) -> (usize, usize) {
        const { assert!(Self::ITEM == 0, "an algorithm with a list says how long it is") };
        (0, 0)
    }

    /// The limit's numbers for the script: count, period, and x, y, z, which the Lua file of the rule explains.
    fn numbers(&self) -> [u64; 5];

    /// The numbers of a state, in the order of its fields; its list is appended.
    fn write(state: &Self::State, list: &mut Vec<u8>) -> [u64; 4];

    /// The state of the numbers in its fields, in order, and of the bytes of its list. `None` of what the numbers do not say.
    fn read(numbers: [u64; 4], list: &[u8]) -> Option<Self::State>;

    /// Whether this rule can count with a state that was read. It asks no more than the script asks before it writes: of a list
    /// the ends, and not the sum, since the total says what is used.
    fn can_have(&self, state: &Self::State) -> bool;
}

/// Whether a number that was read is one that every host can hold.
pub(super) const fn fits(number: u64) -> bool {
    number <= MAX_SAFE_INTEGER
}

/// Removes a little-endian number of `width` bytes from the front.
pub(crate) fn number(bytes: &mut &[u8], width: u8) -> Option<u64> {
    let (head, rest) = bytes.split_at_checked(usize::from(width))?;
    let number = match bytes.first_chunk() {
        // A copy of eight bytes is one instruction, any other is a call.
        Some(wide) => u64::from_le_bytes(*wide) & u64::MAX.checked_shr(64 - 8 * u32::from(width)).unwrap_or(0),
        None => head.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    *bytes = rest;
    Some(number)
}

/// Appends a little-endian number of `width` bytes.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, number: u64, width: u8) {
    // A copy of eight bytes is one instruction, any other is a call.
    let length = out.len() + usize::from(width);
    out.extend_from_slice(&number.to_le_bytes());
    out.truncate(length);
}

/// Appends the items of a list, each of `N` numbers of seven bytes.
pub(super) fn put_items<const N: usize>(out: &mut Vec<u8>, items: impl Iterator<Item = [u64; N]>) {
    items.flatten().for_each(|number| put(out, number, MOMENT_WIDTH));
}

/// The items of a list, each of `N` numbers of seven bytes.
pub(super) fn items<const N: usize>(list: &[u8]) -> Option<impl Iterator<Item = [u64; N]> + '_> {
    let width = N * usize::from(MOMENT_WIDTH);
    list.len().is_multiple_of(width).then(|| {
        list.chunks_exact(width).map(|mut item| {
            let mut numbers = [0; N];
            for slot in &mut numbers {
                *slot = number(&mut item, MOMENT_WIDTH).unwrap_or_default();
            }
            numbers
        })
    })
}
