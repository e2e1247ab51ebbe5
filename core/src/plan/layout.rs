//! The layout of a stored value: the fields of each limit, and the header that identifies the limits.
//!
//! A value is a header, the fields of all limits and their lists. The compact form stores counts in as few bytes as the
//! limit's numbers need. The narrow form stores them in one, where that makes a value of one limit small enough for the next
//! smaller allocation. The full form stores them in seven, and has a field more: the moment at which a block ends.
//! docs/adr/0002 has the reasons.

use smallvec::SmallVec;

use crate::algorithm::Rule;
use crate::policy::{Algorithm, Limit, Period, Unit};

/// The version in the header of every stored value.
const VERSION: u8 = 1;
/// Stands for a period that has no code of one byte.
const LONG_PERIOD: u8 = 255;
/// Stands for the ttl of a `concurrency` limit, which is a number and no part of its identity.
const ANY_PERIOD: u8 = 254;
/// Bytes of a count in the full form.
const FULL_WIDTH: u8 = 7;
/// The largest count of the narrow form.
pub(crate) const MAX_NARROW_COUNT: u64 = 255;
/// The most bytes of a value that shares an allocation of 32 bytes with what Redis keeps of it.
const SMALL_VALUE: usize = 12;
/// Bytes of a moment.
pub(crate) const MOMENT_WIDTH: u8 = 7;
/// Bytes of a list's length.
const LENGTH_WIDTH: u8 = 4;

/// The identity of a stored limit. After a change of its policy, a limit of the same algorithm and period keeps what was
/// used. A bucket's count is part of the tag because its state cannot be read without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitTag {
    /// From 1 on, in the order of [`Algorithm::ALL`].
    pub(super) algorithm: u8,
    /// One byte, or eight.
    pub(super) period: SmallVec<[u8; 8]>,
    /// The count of a bucket, at least 1; 0 for every other algorithm.
    pub(crate) bucket_count: u64,
}

impl LimitTag {
    pub(super) fn of(limit: &Limit) -> Self {
        let index = Algorithm::ALL.iter().position(|algorithm| *algorithm == limit.algorithm()).unwrap_or_default();
        let bucket_count = if limit.algorithm().has_burst() { limit.count().max(1) } else { 0 };
        Self { algorithm: index as u8 + 1, period: period_code(limit), bucket_count }
    }

    /// Whether both are of the same algorithm and period.
    pub(crate) fn is_same_limit(&self, other: &Self) -> bool {
        (self.algorithm, &self.period) == (other.algorithm, &other.period)
    }
}

/// A field of a stored limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Moment,
    Count,
    /// The length of the limit's list, in bytes.
    Length,
}

impl Field {
    /// Its bytes, where a count has that many.
    pub(crate) fn width(self, count: u8) -> u8 {
        match self {
            Self::Moment => MOMENT_WIDTH,
            Self::Count => count,
            Self::Length => LENGTH_WIDTH,
        }
    }
}

/// The form of a stored value: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Narrow,
    Compact,
    Full,
}

impl Form {
    /// Bytes of a count.
    pub(crate) const fn count_width(self, layout: &Layout) -> u8 {
        match self {
            Self::Narrow => 1,
            Self::Compact => layout.count_width,
            Self::Full => FULL_WIDTH,
        }
    }
}

/// How one limit is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) fields: SmallVec<[Field; 4]>,
    /// Bytes of a count in the compact form.
    pub(crate) count_width: u8,
}

impl Layout {
    pub(super) fn of(rule: &Rule, tag: &LimitTag) -> Self {
        use Field::{Count, Length, Moment};
        let mut fields: SmallVec<[Field; 4]> = match rule {
            Rule::FixedWindow(_) | Rule::CalendarWindow(_) => [Moment, Count].into_iter().collect(),
            Rule::SlidingLog(_) => [Moment, Moment, Moment, Length].into_iter().collect(),
            Rule::SlidingWindow(_) => [Moment, Count, Count, Length].into_iter().collect(),
            Rule::SlidingCounter(_) => [Moment, Count, Count].into_iter().collect(),
            Rule::TokenBucket(_) | Rule::Gcra(_) | Rule::LeakyBucket(_) => [Moment, Count].into_iter().collect(),
            Rule::Concurrency(_) => [Moment, Count, Length].into_iter().collect(),
        };
        // A bucket stores a fraction of a microsecond where its emission interval has one.
        if rule.meter().is_some_and(|meter| meter.interval_units > 1) {
            fields.push(Count);
        }
        let largest = rule.capacity().max(tag.bucket_count).max(1);
        Self { fields, count_width: (8 - largest.leading_zeros() as u8 / 8).min(FULL_WIDTH) }
    }

    pub(super) fn has_list(&self) -> bool {
        self.fields.contains(&Field::Length)
    }

    /// The largest count that the compact form can store.
    pub(super) fn max_compact_count(&self) -> u64 {
        (1u64 << (8 * self.count_width)) - 1
    }

    /// Bytes of the fields in the compact form.
    pub(super) fn size(&self) -> u16 {
        self.fields.iter().map(|field| u16::from(field.width(self.count_width))).sum()
    }
}

/// A period as one byte when it is at most 31 of a unit, else as the byte 255 and its microseconds.
fn period_code(limit: &Limit) -> SmallVec<[u8; 8]> {
    if limit.algorithm() == Algorithm::Concurrency {
        return SmallVec::from_slice(&[ANY_PERIOD]);
    }
    let mut period = limit.period();
    if limit.algorithm() != Algorithm::CalendarWindow {
        // Outside of the calendar, weeks, months and years are only lengths.
        period = Period::from_micros(period.micros()).unwrap_or(period);
    }
    let unit = Unit::ALL.iter().position(|unit| *unit == period.unit()).unwrap_or_default() as u8;
    let (multiple, exact) = (period.multiple(), period.micros().is_multiple_of(period.unit().micros()));
    if exact && (1..=31).contains(&multiple) {
        return SmallVec::from_slice(&[unit * 31 + multiple as u8 - 1]);
    }
    let mut code = SmallVec::from_slice(&[LONG_PERIOD]);
    code.extend_from_slice(&period.micros().to_le_bytes()[..7]);
    if limit.algorithm() == Algorithm::CalendarWindow && period.unit() >= Unit::Week {
        // Periods stay below 2^49 µs: the last byte is free to distinguish 60 weeks from 420 days.
        code[7] |= unit << 4;
    }
    code
}

/// The header of a stored value: a byte `001fnnnn` (version 1, f: full form, n: limits), and for each limit a byte
/// `aaaafwww` (algorithm, f: has a fraction, w: bytes of a count), its period, and the count of a bucket. In the narrow form
/// the count is 255 when it is more.
pub(super) fn header(tags: &[LimitTag], layouts: &[Layout], form: Form) -> Vec<u8> {
    let mut header = vec![VERSION << 5 | u8::from(form == Form::Full) << 4 | tags.len() as u8];
    for (tag, layout) in tags.iter().zip(layouts) {
        let bucket = tag.bucket_count > 0;
        let fraction = bucket && layout.fields.len() == 3;
        // The full form says the width of the compact one.
        let width = if form == Form::Narrow { 1 } else { layout.count_width };
        header.push(tag.algorithm << 4 | u8::from(fraction) << 3 | width);
        header.extend_from_slice(&tag.period);
        if bucket {
            let count = if form == Form::Narrow { tag.bucket_count.min(MAX_NARROW_COUNT) } else { tag.bucket_count };
            header.extend_from_slice(&count.to_le_bytes()[..usize::from(width)]);
        }
    }
    header
}

/// The header of the narrow form, of a policy that has it.
pub(super) fn narrow_header(tags: &[LimitTag], layouts: &[Layout]) -> Option<Vec<u8>> {
    let [layout] = layouts else { return None };
    let fraction = tags[0].bucket_count > 0 && layout.fields.len() == 3;
    if layout.has_list() || fraction {
        return None;
    }
    let size = |form: Form| {
        let header = header(tags, layouts, form);
        let fields: usize = layout.fields.iter().map(|field| usize::from(field.width(form.count_width(layout)))).sum();
        (header.len() + fields, header)
    };
    let ((compact, _), (narrow, header)) = (size(Form::Compact), size(Form::Narrow));
    (compact > SMALL_VALUE && narrow <= SMALL_VALUE).then_some(header)
}

/// The format by which `struct.unpack` of Lua reads a value up to its lists.
pub(super) fn format(header: &[u8], layouts: &[Layout], form: Form) -> Vec<u8> {
    let mut format = format!("<c{}", header.len());
    for layout in layouts {
        for field in &layout.fields {
            format += &format!("I{}", field.width(form.count_width(layout)));
        }
    }
    if form == Form::Full {
        format += &format!("I{MOMENT_WIDTH}");
    }
    format.into_bytes()
}
