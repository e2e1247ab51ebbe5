//! Reads and writes stored values as bytes. docs/adr/0028 has the format.

use smallvec::SmallVec;

use super::stored::{Form, LENGTH_WIDTH, Layout, VERSION, width_of};
use crate::algorithm::{FIELDS, FULL_WIDTH, Field, State, number, put};
use crate::plan::{LimitTag, Plan};
use crate::tables::one_or_many::OneOrMany;

/// A value taken apart.
pub(crate) struct ValueParts<'a> {
    /// The numbers of each limit, in the order of its fields.
    pub(crate) numbers: SmallVec<[[u64; 4]; 2]>,
    /// The lists of all limits.
    lists: &'a [u8],
    pub(crate) annex: &'a [u8],
}

impl<'a> ValueParts<'a> {
    /// Takes the list of the next limit, which has these fields.
    pub(crate) fn list(&mut self, fields: &[Field], numbers: [u64; 4]) -> Option<&'a [u8]> {
        let Some(at) = fields.iter().position(|field| *field == Field::Length) else { return Some(&[]) };
        let (list, rest) = self.lists.split_at_checked(numbers[at] as usize)?;
        self.lists = rest;
        Some(list)
    }

    /// True if every list was taken.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.lists.is_empty()
    }
}

/// Removes the numbers of a limit from the front of the bytes after a header.
#[inline]
fn numbers_of(bytes: &mut &[u8], fields: &[Field], count_width: u8) -> Option<[u64; 4]> {
    let mut numbers = [0; 4];
    for (slot, field) in numbers.iter_mut().zip(fields) {
        *slot = number(bytes, field.width(count_width))?;
    }
    Some(numbers)
}

/// Splits the bytes after the fields of a value into lists and annex.
fn split_rest(mut rest: &[u8], is_full: bool) -> Option<(&[u8], &[u8])> {
    let annex_length = if is_full { number(&mut rest, LENGTH_WIDTH)? as usize } else { 0 };
    rest.split_at_checked(rest.len().checked_sub(annex_length)?)
}

impl Plan {
    /// Takes a value of this version of the policy apart. `None` for any other.
    pub(crate) fn parts<'a>(&self, value: &'a [u8]) -> Option<ValueParts<'a>> {
        let stored = &self.stored;
        let (form, mut rest) = if let Some(rest) = stored.header.rest_of(value) {
            (Form::Compact, rest)
        } else if let Some(rest) = stored.narrow_header.as_ref().and_then(|header| header.rest_of(value)) {
            (Form::Narrow, rest)
        } else {
            (Form::Full, stored.full_header.rest_of(value)?)
        };
        let mut numbers = SmallVec::new();
        for layout in &stored.layouts {
            numbers.push(numbers_of(&mut rest, &layout.fields, form.count_width(layout))?);
        }
        let (lists, annex) = split_rest(rest, form == Form::Full)?;
        Some(ValueParts { numbers, lists, annex })
    }

    /// The state in a value of one limit in the compact form, the form of nearly all values. `None` for any other.
    #[inline]
    pub(crate) fn state_of_one(&self, value: &[u8]) -> Option<State> {
        let ([rule], [layout]) = (&*self.rules, &*self.stored.layouts) else { return None };
        let mut rest = self.stored.header.rest_of(value)?;
        let numbers = numbers_of(&mut rest, &layout.fields, layout.count_width)?;
        let length = layout.fields.iter().position(|field| *field == Field::Length).map_or(0, |at| numbers[at]);
        if length != rest.len() as u64 {
            return None;
        }
        rule.read(numbers, rest).filter(|state| rule.can_have(state))
    }

    /// The states of a value that was taken apart. `None` if a rule cannot have one of them.
    pub(crate) fn states_of(&self, mut parts: ValueParts<'_>) -> Option<OneOrMany<State>> {
        let numbers = std::mem::take(&mut parts.numbers);
        let limits = self.rules.iter().zip(&self.stored.layouts).zip(numbers);
        let states = limits.map(|((rule, layout), numbers)| {
            let list = parts.list(&layout.fields, numbers)?;
            rule.read(numbers, list).filter(|state| rule.can_have(state))
        });
        let states = states.collect::<Option<OneOrMany<State>>>()?;
        parts.is_at_end().then_some(states)
    }

    /// Appends a value: in the compact form if every number fits and there is no annex, else in the full one.
    pub(crate) fn write_value<'a>(&self, states: impl Iterator<Item = &'a State>, annex: &[u8], out: &mut Vec<u8>) {
        let (mut lists, mut numbers): (Vec<u8>, SmallVec<[[u64; 4]; 2]>) = Default::default();
        let mut is_full = !annex.is_empty();
        for (state, layout) in states.zip(&self.stored.layouts) {
            let own = numbers_to_write(state, &layout.fields, &mut lists);
            let counts = layout.fields.iter().zip(own).filter(|(field, _)| **field == Field::Count);
            is_full |= counts.into_iter().any(|(_, count)| count > layout.max_compact_count());
            numbers.push(own);
        }
        out.extend_from_slice(if is_full { &self.stored.full_header.bytes } else { &self.stored.header.bytes });
        let form = if is_full { Form::Full } else { Form::Compact };
        for (numbers, layout) in numbers.iter().zip(&self.stored.layouts) {
            put_numbers(out, numbers, &layout.fields, form.count_width(layout));
        }
        if is_full {
            put(out, annex.len() as u64, LENGTH_WIDTH);
        }
        out.extend_from_slice(&lists);
        out.extend_from_slice(annex);
    }
}

/// The numbers of a state, with the length of its list. Appends the list.
fn numbers_to_write(state: &State, fields: &[Field], lists: &mut Vec<u8>) -> [u64; 4] {
    let before = lists.len();
    let mut numbers = state.write(lists);
    if let Some(at) = fields.iter().position(|field| *field == Field::Length) {
        numbers[at] = (lists.len() - before) as u64;
    }
    numbers
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64; 4], fields: &[Field], count_width: u8) {
    for (number, field) in numbers.iter().zip(fields) {
        put(out, *number, field.width(count_width));
    }
}

impl LimitTag {
    fn fields(&self) -> SmallVec<[Field; 4]> {
        let index = usize::from(self.algorithm.max(1) - 1).min(FIELDS.len() - 1);
        let mut fields = SmallVec::from_slice(FIELDS[index]);
        if self.has_fraction {
            fields.push(Field::Count);
        }
        fields
    }

    /// Appends the tag and a state in the full form.
    pub(crate) fn write_with_state(&self, state: &State, out: &mut Vec<u8>) {
        let has_fraction = self.bucket_count > 0 && state.write(&mut Vec::new())[2] > 0;
        let tag = Self { has_fraction, ..self.clone() };
        let layout = Layout { fields: tag.fields(), count_width: width_of(self.bucket_count) };
        tag.write(&layout, out);
        let mut list = Vec::new();
        let numbers = numbers_to_write(state, &layout.fields, &mut list);
        put_numbers(out, &numbers, &layout.fields, FULL_WIDTH);
        out.extend_from_slice(&list);
    }

    /// Reads a tag and its state in the full form, from all of the bytes.
    pub(crate) fn read_with_state(mut bytes: &[u8]) -> Option<(Self, State)> {
        let tag = Self::read(&mut bytes)?;
        let fields = tag.fields();
        let numbers = numbers_of(&mut bytes, &fields, FULL_WIDTH)?;
        let state = tag.any_rule()?.read(numbers, bytes)?;
        Some((tag, state))
    }
}

/// The limits of a value and its parts, for any policy in this version of the format.
pub(crate) fn parts_of_any(value: &[u8]) -> Option<(Vec<LimitTag>, ValueParts<'_>)> {
    let (head, mut rest) = value.split_first()?;
    if head >> 5 != VERSION {
        return None;
    }
    let is_full = head >> 4 & 1 == 1;
    let tags = (0..head & 15).map(|_| {
        let width = rest.first()? & 7;
        LimitTag::read(&mut rest).map(|tag| (tag, if is_full { FULL_WIDTH } else { width }))
    });
    let tags: Vec<(LimitTag, u8)> = tags.collect::<Option<_>>()?;
    let numbers = tags.iter().map(|(tag, width)| numbers_of(&mut rest, &tag.fields(), *width));
    let numbers = numbers.collect::<Option<_>>()?;
    let (lists, annex) = split_rest(rest, is_full)?;
    Some((tags.into_iter().map(|(tag, _)| tag).collect(), ValueParts { numbers, lists, annex }))
}

/// The states of these limits. `None` if the bytes are not such states.
pub(crate) fn states_of_any(tags: &[LimitTag], mut parts: ValueParts<'_>) -> Option<SmallVec<[State; 2]>> {
    let numbers = std::mem::take(&mut parts.numbers);
    let states = tags.iter().zip(numbers).map(|(tag, numbers)| {
        let list = parts.list(&tag.fields(), numbers)?;
        tag.any_rule()?.read(numbers, list)
    });
    let states = states.collect::<Option<_>>()?;
    parts.is_at_end().then_some(states)
}
