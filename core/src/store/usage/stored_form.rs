//! A usage as bytes: the value that servers keep too, and the journal behind it.

use std::sync::Arc;

use super::annex::UsageAnnex;
use super::journal::Journal;
use super::waiting_line::InLine;
use super::{RareState, Usage};
use crate::algorithm::{LearnedLimits, MAX_SAFE_INTEGER, MOMENT_WIDTH, Rule, State, Traces, number, put};
use crate::plan::section::{
    BLOCK, GENERATION, IN_LINE, LEARNED, LINE, OTHER_LIMIT, OVERRIDE, TRACES, TURNS, put_section, sections,
};
use crate::plan::{BlockLevel, LimitTag, Plan, StateFormat, StoredLimit, parts_of_any, states_of_any};
use crate::store::request::{Answer, Attempt, Entry, Operation, SimpleAnswer, StoredOverride};
use crate::tables::one_or_many::OneOrMany;

/// The kinds of parts behind a value. Each part has a length of four bytes.
const JOURNAL: u8 = 1;
/// The policy and the key of an override, because a record has only a digest of them.
const NAME: u8 = 2;

/// Bytes of the length of such a part.
const PART_LENGTH: u8 = 4;

/// The parts behind a value.
#[derive(Default)]
struct Appendix<'a> {
    journal: Option<&'a [u8]>,
    /// The identity of the policy, and the key.
    name: Option<(u128, &'a str)>,
}

impl<'a> Appendix<'a> {
    fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut appendix = Self::default();
        while let Some((kind, mut rest)) = bytes.split_first() {
            let length = number(&mut rest, PART_LENGTH)? as usize;
            let (content, after) = rest.split_at_checked(length)?;
            bytes = after;
            match *kind {
                JOURNAL => appendix.journal = Some(content),
                NAME => {
                    let (identity, key) = content.split_first_chunk()?;
                    appendix.name = Some((u128::from_le_bytes(*identity), std::str::from_utf8(key).ok()?));
                }
                _ => {}
            }
        }
        Some(appendix)
    }
}

fn put_part(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    put(out, 0, PART_LENGTH);
    write(out);
    let length = (out.len() - at - usize::from(PART_LENGTH)) as u32;
    out[at..at + usize::from(PART_LENGTH)].copy_from_slice(&length.to_le_bytes());
}

/// The result of a look at a stored value, without making a usage.
pub(in crate::store) enum Glance {
    /// It is a peek, or a check that is refused.
    Answered(Answer),
    /// It is a check, which this state admits.
    Admitted(State),
    Unknown,
}

/// Looks at a stored value and the bytes behind it. For one limit, the state is enough for nearly every call.
#[inline]
pub(in crate::store) fn glance(entry: &Entry<'_>, (value, appendix): (&[u8], &[u8]), now: u64) -> Glance {
    let plan = entry.plan;
    let (cost, is_peek) = match entry.operation {
        Operation::Check { cost, details: None, .. } => (cost, false),
        Operation::Peek { cost, details: None } => (cost, true),
        _ => return Glance::Unknown,
    };
    let [rule] = &*plan.rules else { return Glance::Unknown };
    if !plan.answers_by_state || !appendix.is_empty() || !plan.stored_override().is_empty() {
        return Glance::Unknown;
    }
    let Some(state) = plan.state_of_one(value) else { return Glance::Unknown };
    let applied = rule.admits(&state, now, cost);
    if applied && !is_peek {
        return Glance::Admitted(state);
    }
    Glance::Answered(SimpleAnswer { applied, granted: 0, now, view: rule.view(&state, now, cost, 0) }.into())
}

impl Usage {
    /// A usage of one limit, with nothing beside it.
    #[inline]
    pub(in crate::store) fn of_one(plan: &Plan, state: State, (expires_at, denies_until): (u64, u64)) -> Self {
        let format = Arc::clone(&plan.format);
        Self { format, states: OneOrMany::One(state), expires_at, rare: None, denies_until }
    }

    /// Reads a usage from a value and the bytes behind it, with the moments when it expires and until when it denies.
    /// `None` if the bytes are no usage.
    pub(in crate::store) fn read(
        plan: &Plan,
        (value, appendix): (&[u8], &[u8]),
        (expires_at, denies_until): (u64, u64),
        now: u64,
    ) -> Option<Self> {
        let (format, states, annex) = if let Some(state) = plan.state_of_one(value) {
            (Arc::clone(&plan.format), OneOrMany::One(state), &[][..])
        } else if let Some(parts) = plan.parts(value) {
            let annex = parts.annex;
            (Arc::clone(&plan.format), plan.states_of(parts)?, annex)
        } else if value.is_empty() {
            (Arc::clone(&plan.format), plan.rules.iter().map(Rule::fresh).collect(), &[][..])
        } else {
            let (tags, parts) = parts_of_any(value)?;
            let annex = parts.annex;
            let states = states_of_any(&tags, parts)?.into_iter().collect();
            (Arc::new(StateFormat { identity: plan.identity, tags: tags.into() }), states, annex)
        };
        let mut usage = Self { format, states, expires_at, rare: None, denies_until };
        if !annex.is_empty() || !appendix.is_empty() {
            let mut annex = UsageAnnex::read(annex, now)?;
            let Appendix { journal, name } = Appendix::read(appendix)?;
            if let (Some(own), Some((_, key))) = (&mut annex.stored_override, name) {
                own.key = key.into();
            }
            let journal = journal.map_or(Some(None), |journal| Journal::read(journal).map(Some))?;
            if annex != UsageAnnex::default() || journal.is_some() {
                usage.rare = Some(Box::new(RareState { annex, journal }));
            }
        }
        Some(usage)
    }

    /// Appends the usage as this version of its policy stores it. If only the journal has changed, the value is `kept`.
    /// Returns when the usage expires, and the bytes of the value.
    pub(in crate::store) fn write(
        &self,
        plan: &Plan,
        now: u64,
        kept: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> (u64, usize) {
        let before = out.len();
        if let Some(value) = kept {
            out.extend_from_slice(value);
        } else if self.expires_at > now {
            let mut annex = Vec::new();
            if let Some(rare) = &self.rare {
                rare.annex.write(now, &mut annex);
            }
            plan.write_value(self.states.iter(), &annex, out);
        }
        let length = out.len() - before;
        let Some(rare) = &self.rare else { return (self.expires_at, length) };
        if let Some(own) = &rare.annex.stored_override {
            put_part(out, NAME, |out| {
                out.extend_from_slice(&plan.identity.to_le_bytes());
                out.extend_from_slice(own.key.as_bytes());
            });
        }
        if let Some(journal) = &rare.journal {
            put_part(out, JOURNAL, |out| journal.write(out));
        }
        (rare.journal.as_ref().map_or(0, |journal| journal.expires_at).max(self.expires_at), length)
    }
}

/// The override of a key of this policy, from a value and the bytes behind it.
pub(in crate::store) fn stored_override(
    value: &[u8],
    appendix: &[u8],
    plan: &Plan,
    now: u64,
) -> Option<StoredOverride> {
    let (identity, key) = Appendix::read(appendix)?.name?;
    let (_, parts) = parts_of_any(value)?;
    let own = UsageAnnex::read(parts.annex, now)?.stored_override?;
    (identity == plan.identity).then(|| StoredOverride { key: key.to_owned(), ..*own })
}

impl UsageAnnex {
    /// `None` for bytes that are no annex. Parts that have ended are left out.
    fn read(bytes: &[u8], now: u64) -> Option<Self> {
        let mut annex = Self::default();
        for section in sections(bytes) {
            let (kind, content) = section?;
            let mut rest = content;
            let mut next = || number(&mut rest, MOMENT_WIDTH).filter(|number| *number <= MAX_SAFE_INTEGER);
            match kind {
                BLOCK => {
                    annex.blocked_until = next()?;
                    annex.block_level = BlockLevel::stored(*content.get(usize::from(MOMENT_WIDTH))?);
                }
                TRACES => {
                    let (cleared_at, refunded_at, counted_since, refunded, until) =
                        (next()?, next()?, next()?, next()?, next()?);
                    if until > now {
                        annex.traces = Traces { cleared_at, refunded_at, counted_since, refunded, until };
                    }
                }
                GENERATION => annex.generation = next()?,
                OVERRIDE => {
                    let ends = next()?;
                    let text = std::str::from_utf8(content.get(usize::from(MOMENT_WIDTH)..)?).ok()?;
                    let own = StoredOverride { key: String::new(), text: text.to_owned(), ends };
                    annex.stored_override = Some(Box::new(own)).filter(|own| own.last() > now);
                }
                LEARNED => {
                    let learned = LearnedLimits::read(content)?;
                    annex.learned = (learned.ends() > now).then(|| Box::new(learned));
                }
                TURNS => annex.turns_until = Some(next()?).filter(|until| *until > now).unwrap_or(0),
                LINE => {
                    for mut caller in content.chunks_exact(IN_LINE) {
                        let waiter = number(&mut caller, MOMENT_WIDTH)?;
                        let overtaken = number(&mut caller, 1)? as u8;
                        let (asked_at, since) =
                            (number(&mut caller, MOMENT_WIDTH)?, number(&mut caller, MOMENT_WIDTH)?);
                        let caller = InLine { waiter, overtaken, asked_at, since };
                        if caller.ends() > now {
                            annex.line.push(caller);
                        }
                    }
                }
                OTHER_LIMIT => {
                    let until = next()?;
                    if until > now {
                        let (tag, state) = LimitTag::read_with_state(&content[usize::from(MOMENT_WIDTH)..])?;
                        annex.others.push(StoredLimit { tag, state, until });
                    }
                }
                kind => put_section(&mut annex.unknown, kind, |out| out.extend_from_slice(content)),
            }
        }
        Some(annex)
    }

    fn write(&self, now: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.unknown);
        let moments = |out: &mut Vec<u8>, moments: &[u64]| {
            moments.iter().for_each(|moment| put(out, *moment, MOMENT_WIDTH));
        };
        if self.blocked_until > 0 {
            put_section(out, BLOCK, |out| {
                moments(out, &[self.blocked_until]);
                out.push(self.block_level.as_byte());
            });
        }
        let Traces { cleared_at, refunded_at, counted_since, refunded, until } = self.traces;
        if until > now {
            put_section(out, TRACES, |out| moments(out, &[cleared_at, refunded_at, counted_since, refunded, until]));
        }
        if self.generation > 0 {
            put_section(out, GENERATION, |out| moments(out, &[self.generation]));
        }
        if let Some(own) = &self.stored_override {
            put_section(out, OVERRIDE, |out| {
                moments(out, &[own.ends]);
                out.extend_from_slice(own.text.as_bytes());
            });
        }
        if self.turns_until > now {
            put_section(out, TURNS, |out| moments(out, &[self.turns_until]));
        }
        if let Some(learned) = &self.learned {
            put_section(out, LEARNED, |out| learned.write(out));
        }
        if !self.line.is_empty() {
            put_section(out, LINE, |out| {
                for caller in &self.line {
                    moments(out, &[caller.waiter]);
                    out.push(caller.overtaken);
                    moments(out, &[caller.asked_at, caller.since]);
                }
            });
        }
        for other in self.others.iter().filter(|other| other.until > now) {
            put_section(out, OTHER_LIMIT, |out| {
                moments(out, &[other.until]);
                other.tag.write_with_state(&other.state, out);
            });
        }
    }
}

impl Journal {
    /// For each attempt its time, its cost, 1 if it was admitted, the length of its metadata plus 1, and the metadata.
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self.expires_at, MOMENT_WIDTH);
        for Attempt { at, allowed, cost, meta } in &self.attempts {
            put(out, *at, MOMENT_WIDTH);
            put(out, *cost, MOMENT_WIDTH);
            out.push(u8::from(*allowed));
            put(out, meta.as_ref().map_or(0, |meta| meta.len() as u64 + 1), META_WIDTH);
            out.extend_from_slice(meta.as_deref().unwrap_or_default());
        }
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let mut journal = Self::default();
        journal.expires_at = number(bytes, MOMENT_WIDTH)?;
        while !bytes.is_empty() {
            let (at, cost) = (number(bytes, MOMENT_WIDTH)?, number(bytes, MOMENT_WIDTH)?);
            let allowed = number(bytes, 1)? == 1;
            let meta = match number(bytes, META_WIDTH)?.checked_sub(1) {
                Some(length) => {
                    let (meta, rest) = bytes.split_at_checked(length as usize)?;
                    *bytes = rest;
                    Some(meta.to_vec())
                }
                None => None,
            };
            journal.push(Attempt { at, allowed, cost, meta });
        }
        Some(journal)
    }
}

/// Bytes of the length of an attempt's metadata.
const META_WIDTH: u8 = 3;
