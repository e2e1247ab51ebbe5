//! The arguments of the Redis script that depend on the policy alone, written once for all calls.

use super::layout::{Form, Layout, format};
use crate::algorithm::{Field, Rule};
use crate::plan::LimitTag;
use crate::policy::{BlockFor, Options};
use crate::tables::allocation::allocated;

/// The parts of an instruction that depend on the policy alone. `store/redis/script/batch.rs` puts them together, and
/// `read_instruction` in `lua/instruction.lua` reads them.
#[derive(Debug)]
pub(crate) struct ScriptArguments {
    /// The number of header and fields in a decoded value. Its lists follow them.
    pub(crate) slots: u8,
    /// Header, format and the value of an unused key, in the compact form. Then size, header and format of the narrow
    /// form, which are 0 and empty if the policy has none.
    pub(crate) compact_form: Vec<u8>,
    /// The numbers of the limits.
    pub(crate) limits: Vec<u8>,
    /// The part that only the slow path reads: the full form, and more of each limit.
    pub(crate) slow_path: Vec<u8>,
}

impl ScriptArguments {
    /// The bytes that it has allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        [&self.compact_form, &self.limits, &self.slow_path].map(|bytes| allocated(bytes.capacity())).iter().sum()
    }

    pub(super) fn new(
        rules: &[Rule],
        tags: &[LimitTag],
        layouts: &[Layout],
        header: &[u8],
        narrow_header: Option<&[u8]>,
        full_header: &[u8],
        options: &Options,
    ) -> Self {
        let size = header.len() as u16 + layouts.iter().map(Layout::size).sum::<u16>();
        let slots = 1 + layouts.iter().map(|layout| layout.fields.len()).sum::<usize>() as u8;

        let mut compact_form = Vec::new();
        push_short(&mut compact_form, header);
        push_short(&mut compact_form, &format(header, layouts, Form::Compact));
        compact_form.extend_from_slice(&size.to_le_bytes());
        compact_form.extend_from_slice(header);
        compact_form.resize(compact_form.len() + usize::from(size) - header.len(), 0);
        let narrow_size = |header: &[u8]| header.len() as u8 + layouts[0].narrow_size();
        compact_form.push(narrow_header.map_or(0, narrow_size));
        push_short(&mut compact_form, narrow_header.unwrap_or_default());
        push_short(
            &mut compact_form,
            &narrow_header.map_or_else(Vec::new, |header| format(header, layouts, Form::Narrow)),
        );

        let (mut slow_path, mut limits) = (Vec::new(), Vec::new());
        push_short(&mut slow_path, full_header);
        push_short(&mut slow_path, &format(header, layouts, Form::Full));
        // Slot 1 is the header. Lists have the slots after the fields.
        let (mut slot, mut list) = (2, slots);
        for (index, (rule, layout)) in rules.iter().zip(layouts).enumerate() {
            let LimitTag { algorithm, period, .. } = &tags[index];
            let fields = layout.fields.len() as u8;
            let counts = layout.fields.iter().filter(|field| **field == Field::Count).count() as u8;
            list += u8::from(layout.has_list());
            let list_slot = if layout.has_list() { list } else { 0 };
            limits.extend_from_slice(&[*algorithm, slot, list_slot, slot + fields - 1]);
            for number in rule.numbers() {
                limits.extend_from_slice(&(number as f64).to_le_bytes());
            }
            slow_path.extend_from_slice(&[fields, counts]);
            slow_path.extend_from_slice(&(layout.max_compact_count() as f64).to_le_bytes());
            push_short(&mut slow_path, &[algorithm.to_string().as_bytes(), period].concat());
            // Numbers the limits of one algorithm and period, so that their logs have separate chunks.
            let twin = tags[..index].iter().filter(|tag| tag.is_same_limit(&tags[index])).count();
            push_short(&mut slow_path, &[period, format!("{twin}:").as_bytes()].concat());
            slot += fields;
        }
        if options.level_life() > 0 {
            let lengths = options.block_for.iter().flat_map(BlockFor::lengths).map(|length| length.micros());
            for number in std::iter::once(options.level_life()).chain(lengths) {
                slow_path.extend_from_slice(&(number as f64).to_le_bytes());
            }
        }
        Self { slots, compact_form, limits, slow_path }
    }
}

/// Appends a length byte and up to 255 bytes.
fn push_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}
