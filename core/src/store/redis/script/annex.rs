//! The part of a full-form value beside the states of its limits. docs/adr/0028 has its format.

use crate::algorithm::{LearnedAnswer, LearnedLimits, MAX_SAFE_INTEGER, MOMENT_WIDTH, Traces, number};
use crate::plan::section::{BLOCK, GENERATION, IN_LINE, LEARNED, LINE, OTHER_LIMIT, OVERRIDE, TRACES, sections};
use crate::plan::{BlockLevel, LimitTag, parts_of_any};
use crate::store::request::{PATIENCE, RareAnswer};

/// The numbers of the line that the sources of the script have names for.
#[cfg(feature = "bench")]
pub(super) const LINE_NUMBERS: [(&str, u64); 2] =
    [("PATIENCE_OF_WAITERS", PATIENCE), ("RANK_OF_WAITERS", 1 << crate::store::request::RANK_SHIFT)];

/// The annex of a stored value, decoded.
#[derive(Debug, Default)]
pub(super) struct Annex {
    pub(super) blocked_until: u64,
    block_level: BlockLevel,
    traces: Traces,
    generation: u64,
    /// The tags of other limits in the value. The script sends nothing else of them.
    others: Vec<LimitTag>,
    /// For each caller in the line, when it last asked and since when it waits.
    line: Vec<(u64, u64)>,
    /// The limits that were learned for the key.
    pub(super) learned: Option<LearnedLimits>,
    /// The learned part of the answer.
    pub(super) seen: Option<LearnedAnswer>,
}

impl Annex {
    /// `None` for bytes that are no annex.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut annex = Self::default();
        for section in sections(bytes) {
            let (kind, content) = section?;
            let mut numbers = content;
            let mut next = || number(&mut numbers, MOMENT_WIDTH).filter(|number| *number <= MAX_SAFE_INTEGER);
            match kind {
                BLOCK => {
                    annex.blocked_until = next()?;
                    annex.block_level = BlockLevel::stored(*content.get(usize::from(MOMENT_WIDTH))?);
                }
                TRACES => {
                    annex.traces = Traces {
                        cleared_at: next()?,
                        refunded_at: next()?,
                        counted_since: next()?,
                        refunded: next()?,
                        until: next()?,
                    };
                }
                GENERATION => annex.generation = next()?,
                LEARNED => annex.learned = Some(LearnedLimits::read(content)?),
                LINE => {
                    for mut caller in content.chunks_exact(IN_LINE).map(|caller| &caller[IN_LINE - 14..]) {
                        annex.line.push((number(&mut caller, MOMENT_WIDTH)?, number(&mut caller, MOMENT_WIDTH)?));
                    }
                }
                OTHER_LIMIT => annex.others.push(LimitTag::read(&mut content.get(MOMENT_WIDTH.into()..)?)?),
                _ => {}
            }
        }
        Some(annex)
    }

    /// The rare part of an answer. Nearly always there is none, which is found out without making it.
    #[inline]
    pub(super) fn into_rare_answer(self, now: u64) -> Option<Box<RareAnswer>> {
        let is_plain = self.generation == 0 && self.traces.until == 0 && self.block_level == BlockLevel::default();
        let is_plain = is_plain && self.others.is_empty() && self.line.is_empty();
        if is_plain && self.seen.is_none() { None } else { self.rare_answer(now) }
    }

    #[cold]
    fn rare_answer(self, now: u64) -> Option<Box<RareAnswer>> {
        let Self { traces, generation, block_level, others, line, seen: learned, .. } = self;
        let line = line.into_iter().filter(|(asked, _)| asked + PATIENCE > now).map(|(_, since)| since).collect();
        let rare = RareAnswer {
            traces: traces.at(now),
            generation,
            block_level,
            others,
            line,
            learned,
            ..RareAnswer::default()
        };
        (rare != RareAnswer::default()).then(|| Box::new(rare))
    }
}

/// The override in a stored value, if one is in force at that moment.
pub(crate) fn override_of(value: &[u8], now: u64) -> Option<&str> {
    let (_, parts) = parts_of_any(value)?;
    let (_, mut content) = sections(parts.annex).flatten().find(|(kind, _)| *kind == OVERRIDE)?;
    let ends = number(&mut content, MOMENT_WIDTH)?;
    std::str::from_utf8(content).ok().filter(|_| ends == 0 || ends > now)
}

/// The limits that a stored value counts, whatever its policy: those of the release that wrote it, and others. `None`
/// for bytes that are no value of this version, and for a key with an override: its others may be of the same release.
pub(crate) fn limits_of(value: &[u8]) -> Option<(Vec<LimitTag>, Vec<LimitTag>)> {
    let (tags, parts) = parts_of_any(value)?;
    let is_overridden = sections(parts.annex).flatten().any(|(kind, _)| kind == OVERRIDE);
    (!is_overridden).then_some((tags, Annex::read(parts.annex)?.others))
}
