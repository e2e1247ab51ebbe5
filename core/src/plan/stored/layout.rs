//! The layout of a stored value: the fields of each limit, and the header that identifies the limits.
//!
//! A value is a header, the fields of all limits and their lists. The compact form stores counts in as few bytes as the
//! limit's numbers need. The narrow form stores them in one, if a value of one limit then fits the next smaller
//! allocation. The full form stores them in seven. It ends with an annex, and one more field is the length of the
//! annex. docs/adr/0002 and docs/adr/0028 have the reasons.

use smallvec::SmallVec;

use crate::algorithm::{FULL_WIDTH, Field, MOMENT_WIDTH, Rule, put};
use crate::plan::LimitTag;

/// The version in the header of every stored value.
pub(crate) const VERSION: u8 = 2;
/// The largest count of the narrow form.
pub(crate) const MAX_NARROW_COUNT: u64 = 255;
/// The most bytes of a value that shares an allocation of 32 bytes with the bookkeeping of Redis.
const SMALL_VALUE: usize = 12;
/// Bytes of a list's length.
pub(crate) const LENGTH_WIDTH: u8 = 4;

impl Field {
    /// Its bytes, if a count has `count` bytes.
    pub(crate) const fn width(self, count: u8) -> u8 {
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

/// The bytes for counts up to `largest`.
pub(crate) const fn width_of(largest: u64) -> u8 {
    let width = 8 - largest.leading_zeros() as u8 / 8;
    if width == 0 {
        1
    } else if width < FULL_WIDTH {
        width
    } else {
        FULL_WIDTH
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
        let mut fields = SmallVec::from_slice(rule.fields());
        // A bucket stores a fraction of a microsecond if its emission interval has one.
        if rule.meter().is_some_and(|meter| meter.interval_units > 1) {
            fields.push(Field::Count);
        }
        let largest = rule.capacity().max(tag.bucket_count).max(1);
        Self { fields, count_width: width_of(largest) }
    }

    pub(super) fn has_list(&self) -> bool {
        self.fields.contains(&Field::Length)
    }

    /// The largest count that the compact form can store.
    pub(crate) fn max_compact_count(&self) -> u64 {
        (1u64 << (8 * self.count_width)) - 1
    }

    /// Bytes of the fields in the narrow form.
    pub(super) fn narrow_size(&self) -> u8 {
        self.fields.iter().map(|field| field.width(Form::Narrow.count_width(self))).sum()
    }

    /// Bytes of the fields in the compact form.
    pub(super) fn size(&self) -> u16 {
        self.fields.iter().map(|field| u16::from(field.width(self.count_width))).sum()
    }
}

/// The header of a stored value: a byte `010fnnnn` (version 2, f: full form, n: limits), and for each limit a byte
/// `aaaafwww` (algorithm, f: has a fraction, w: bytes of a count), its period, and the count of a bucket. In the narrow form
/// the count is 255 when it is more.
pub(super) fn header(tags: &[LimitTag], layouts: &[Layout], form: Form) -> Vec<u8> {
    let mut header = vec![VERSION << 5 | u8::from(form == Form::Full) << 4 | tags.len() as u8];
    for (tag, layout) in tags.iter().zip(layouts) {
        if form == Form::Narrow {
            let narrow = LimitTag { bucket_count: tag.bucket_count.min(MAX_NARROW_COUNT), ..tag.clone() };
            narrow.write(&Layout { fields: layout.fields.clone(), count_width: 1 }, &mut header);
        } else {
            // The full form has the width of the compact one here.
            tag.write(layout, &mut header);
        }
    }
    header
}

impl LimitTag {
    /// Appends it in the form for a header.
    pub(crate) fn write(&self, layout: &Layout, out: &mut Vec<u8>) {
        let bucket = self.bucket_count > 0;
        let fraction = bucket && layout.fields.len() == 3;
        out.push(self.algorithm << 4 | u8::from(fraction) << 3 | layout.count_width);
        out.extend_from_slice(&self.period);
        if bucket {
            put(out, self.bucket_count, layout.count_width);
        }
    }
}

/// Bytes of the fields of all limits.
pub(super) fn fields_size(layouts: &[Layout], form: Form) -> usize {
    let of_limit = |layout: &Layout| -> usize {
        layout.fields.iter().map(|field| usize::from(field.width(form.count_width(layout)))).sum()
    };
    layouts.iter().map(of_limit).sum()
}

/// The header of the narrow form, if the policy has that form.
pub(super) fn narrow_header(tags: &[LimitTag], layouts: &[Layout]) -> Option<Vec<u8>> {
    let [layout] = layouts else { return None };
    let fraction = tags[0].bucket_count > 0 && layout.fields.len() == 3;
    if layout.has_list() || fraction {
        return None;
    }
    let size = |form: Form| {
        let header = header(tags, layouts, form);
        (header.len() + fields_size(layouts, form), header)
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
        format += &format!("I{LENGTH_WIDTH}");
    }
    format.into_bytes()
}
