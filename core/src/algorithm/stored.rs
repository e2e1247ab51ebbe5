//! The stored form of a limit, and the numbers that the script gets for it.

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

/// The facts about an algorithm that the script has to know for every limit.
#[cfg(feature = "bench")]
#[derive(Debug)]
pub(crate) struct Stored {
    /// Its name in the table of algorithms.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
    /// The bytes of an item in its list, 0 if it has no list.
    pub(crate) item: u8,
    /// True for each kind of refund that counts: those without a Decision, and those by one.
    pub(crate) counts_refunds: (bool, bool),
}

#[cfg(feature = "bench")]
impl Stored {
    pub(super) fn of<R: StoredRule>(name: &'static str) -> Self {
        Self { name, fields: R::FIELDS, item: R::ITEM * MOMENT_WIDTH, counts_refunds: R::COUNTS_REFUNDS }
    }

    /// A letter for each field: M for a moment, C for a count, L for the length of the list.
    pub(crate) fn field_codes(&self) -> String {
        let letter = |field: &Field| match field {
            Field::Moment => 'M',
            Field::Count => 'C',
            Field::Length => 'L',
        };
        self.fields.iter().map(letter).collect()
    }
}

/// A limit of one algorithm, as Redis stores it.
pub(super) trait StoredRule: LimitRule {
    /// The numbers of an item in the list, each of as many bytes as a moment.
    const ITEM: u8 = 0;
    /// The bytes of an item.
    const ITEM_BYTES: usize = Self::ITEM as usize * MOMENT_WIDTH as usize;

    /// The fields of a stored limit, in order. A meter has one more count if its interval has a fraction of a microsecond.
    const FIELDS: &'static [Field];

    /// The bytes of its list when all its units are in use, and the most of it that a reply may have.
    fn list_bytes(_limit: &Limit) -> (usize, usize) {
        const { assert!(Self::ITEM == 0, "an algorithm with a list says how long it is") };
        (0, 0)
    }

    /// The limit's numbers for the script: count, period, and x, y, z. The Lua file of the rule explains these three.
    fn numbers(&self) -> [u64; 5];

    /// The numbers of a state, in the order of its fields. Appends its list.
    fn write(state: &Self::State, list: &mut Vec<u8>) -> [u64; 4];

    /// Builds the state from the numbers in its fields, in order, and the bytes of its list. `None` if they are not enough.
    fn read(numbers: [u64; 4], list: &[u8]) -> Option<Self::State>;

    /// True if this rule can count with a stored state. It checks no more than the script does before it writes. In a list it
    /// checks the ends and not the sum, because the total holds the used units.
    fn can_have(&self, state: &Self::State) -> bool;
}

/// True if every host can hold this number.
pub(super) const fn fits(number: u64) -> bool {
    number <= MAX_SAFE_INTEGER
}

/// Removes a little-endian number of `width` bytes from the front.
pub(crate) fn number(bytes: &mut &[u8], width: u8) -> Option<u64> {
    let (head, rest) = bytes.split_at_checked(usize::from(width))?;
    let number = match bytes.first_chunk() {
        // A copy of eight bytes is one instruction. Any other is a call.
        Some(wide) => u64::from_le_bytes(*wide) & u64::MAX.checked_shr(64 - 8 * u32::from(width)).unwrap_or(0),
        None => head.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    *bytes = rest;
    Some(number)
}

/// Appends a little-endian number of `width` bytes.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, number: u64, width: u8) {
    // A copy of eight bytes is one instruction. Any other is a call.
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
