//! The form in which servers keep the usage of a policy, and the arguments of calls to them.

mod header;
mod layout;
mod script_arguments;
pub(crate) mod section;

use super::LimitTag;
use crate::algorithm::{MOMENT_WIDTH, Rule};
use crate::plan::MAX_METADATA;
use crate::policy::{Limit, Policy};
use crate::tables::allocation::allocated;

pub(crate) use header::Header;
pub(super) use layout::{Form, LENGTH_WIDTH, Layout, VERSION, width_of};
pub(crate) use script_arguments::ScriptArguments;

/// The most bytes of headers, fields and moments of one limit in a reply, with much to spare. If a server, or anything
/// in front of it, sends more than the bounds below, its reply is not trusted.
const FIELDS: usize = 256;
/// The annex. The script does not send the states of other limits in it.
const ANNEX: usize = 4_096;
/// An attempt in a journal without its metadata, with its frame in the reply.
const ATTEMPT: usize = 64;
/// An admitted check in a log that is kept whole.
const LOGGED: usize = 2 * MOMENT_WIDTH as usize;

/// The formats and script arguments of a policy, computed once.
#[derive(Debug)]
pub(crate) struct StoredForm {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) header: Header,
    /// The header of the narrow form, if the policy has it.
    pub(crate) narrow_header: Option<Header>,
    pub(crate) full_header: Header,
    pub(crate) script_arguments: ScriptArguments,
    /// The most bytes that the script returns for a value, and for a journal.
    pub(crate) max_value: usize,
    pub(crate) max_journal: usize,
    /// The most bytes of a value in a store that keeps all of it in one, without the metadata of its journal.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store of this build keeps all in one value"))]
    pub(crate) max_whole: usize,
    /// True if a key has two Redis keys beside its value, for the chunks of a log and for a journal.
    pub(crate) has_companions: bool,
    /// True if a loop of `lua/check.lua` serves plain checks. It handles neither a journal nor a log beside other limits.
    pub(crate) has_loop: bool,
    /// The bytes that it has allocated.
    pub(super) heap_bytes: usize,
}

impl StoredForm {
    pub(super) fn new(policy: &Policy, rules: &[Rule], tags: &[LimitTag]) -> Self {
        let layouts: Vec<Layout> = rules.iter().zip(tags).map(|(rule, tag)| Layout::of(rule, tag)).collect();
        let header = Header::new(layout::header(tags, &layouts, Form::Compact));
        let narrow_header = layout::narrow_header(tags, &layouts).map(Header::new);
        let full_header = Header::new(layout::header(tags, &layouts, Form::Full));
        let script_arguments = ScriptArguments::new(
            rules,
            tags,
            &layouts,
            &header.bytes,
            narrow_header.as_ref().map(|header| &*header.bytes),
            &full_header.bytes,
            policy.options(),
        );
        let whole_list = |(limit, rule): (&Limit, &Rule)| match rule {
            Rule::SlidingLog(_) => usize::try_from(limit.count()).unwrap_or(usize::MAX).saturating_mul(LOGGED),
            _ => limit.list_bytes().0,
        };
        let lists = policy.limits().iter().zip(rules).map(whole_list).fold(0, usize::saturating_add);
        let has_journal = policy.options().journal > 0;
        let has_log = rules.iter().any(|rule| matches!(rule, Rule::SlidingLog(_)));
        let heap_bytes = allocated(layouts.capacity() * size_of::<Layout>())
            + header.heap_bytes()
            + narrow_header.as_ref().map_or(0, Header::heap_bytes)
            + full_header.heap_bytes()
            + script_arguments.heap_bytes();
        Self {
            max_value: ANNEX + policy.limits().iter().map(|limit| FIELDS + limit.list_bytes().1).sum::<usize>(),
            max_journal: FIELDS + policy.options().journal as usize * (ATTEMPT + MAX_METADATA),
            max_whole: (ANNEX + FIELDS * rules.len() + policy.options().journal as usize * ATTEMPT)
                .saturating_add(lists),
            has_companions: has_journal || has_log,
            has_loop: !has_journal && (rules.len() == 1 || !has_log),
            layouts,
            header,
            narrow_header,
            full_header,
            script_arguments,
            heap_bytes,
        }
    }

    /// The bytes of a stored value of its policy, for a key that is hardly used and for one that uses all its limits.
    pub(crate) fn value_bytes(&self, policy: &Policy) -> (usize, usize) {
        let value = |header: &Header, form| header.bytes.len() + layout::fields_size(&self.layouts, form);
        let compact = value(&self.header, Form::Compact);
        let least = self.narrow_header.as_ref().map_or(compact, |header| value(header, Form::Narrow));
        (least, compact + policy.limits().iter().map(|limit| limit.list_bytes().0).sum::<usize>())
    }
}
