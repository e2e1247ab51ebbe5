//! A policy made ready to be applied: its rules, and how its state is laid out in a store.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::{Rule, View};
use crate::one_or_many::OneOrMany;
use crate::policy::{Algorithm, Limit, Period, Policy, Unit};

/// The version mark in every stored value.
pub(crate) const VERSION: u8 = 1;
/// Stands for a period that has no code of one byte.
const LONG_PERIOD: u8 = 255;
/// Stands for the ttl of a `concurrency` limit, which is a number and no part of its identity.
const ANY_PERIOD: u8 = 254;
/// Bytes of a count in the full form.
const FULL: u8 = 7;
/// Bytes of a moment.
pub(crate) const MOMENT: u8 = 7;
/// Bytes of a list's length.
const LENGTH: u8 = 4;

/// What makes a stored limit the same limit after a change of numbers: algorithm and period; and of a bucket the count,
/// without which its state cannot be read.
pub(crate) type Tag = (u8, SmallVec<[u8; 8]>, u64);

/// Whose usage it is, and how its states are to be read: all plans of a policy that agree in both may share it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Names the policy.
    pub(crate) identity: u128,
    /// The identities of the limits, in order.
    pub(crate) shape: Box<[Tag]>,
}

/// A field of a stored limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Moment,
    Count,
    Length,
}

/// How one limit is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) fields: SmallVec<[Field; 4]>,
    /// Bytes of a count in the compact form.
    pub(crate) width: u8,
}

/// What `parse` in `lua/value.lua` and `complete` in `lua/slow_path.lua` read of a policy.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Slots of a decoded value before its lists.
    pub(crate) slots: u8,
    /// Header, format and the value of a key never seen.
    pub(crate) form: Vec<u8>,
    /// What only rare paths need.
    pub(crate) rest: Vec<u8>,
    /// The numbers of the limits.
    pub(crate) limits: Vec<u8>,
}

/// A policy, its rules and its layout; made once, shared by every call.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) policy: Policy,
    pub(crate) rules: SmallVec<[Rule; 2]>,
    /// What marks usage in memory as this policy's.
    pub(crate) version: Arc<Version>,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) header: Vec<u8>,
    pub(crate) full_header: Vec<u8>,
    /// Whether a denial may change what is stored.
    pub(crate) denial_writes: bool,
    /// How long a key is remembered after everything else about it is over; for buckets with `initial`.
    pub(crate) grace: u64,
    /// The parts of a script's ask that only depend on the policy.
    pub(crate) ask: Ask,
    /// Names the policy in stores: a digest of its name.
    pub(crate) identity: u128,
}

impl Plan {
    pub(crate) fn new(policy: Policy) -> Self {
        let rules: SmallVec<[Rule; 2]> = policy.limits().iter().map(Rule::new).collect();
        let shape: Box<[Tag]> = policy.limits().iter().map(tag).collect();
        let layouts: Vec<Layout> = rules.iter().zip(shape.iter()).map(|(rule, tag)| layout(rule, tag.2)).collect();
        let header = header(&shape, &layouts, false);
        let full_header = self::header(&shape, &layouts, true);
        let grace = rules.iter().map(Rule::grace).max().unwrap_or(0);
        let options = policy.options();
        let denial_writes = grace > 0 || options.count_denied || options.block_for.is_some();
        let ask = ask(&rules, &shape, &layouts, &header, &full_header);
        let digest = blake3::hash(policy.name().as_bytes());
        let identity = u128::from_le_bytes(digest.as_bytes()[..16].try_into().unwrap_or_default());
        let version = Arc::new(Version { identity, shape });
        Self { policy, rules, version, layouts, header, full_header, denial_writes, grace, ask, identity }
    }

    /// Whether the state of a limit is more than a few numbers.
    pub(crate) fn keeps_lists(&self) -> bool {
        self.layouts.iter().any(|layout| layout.fields.contains(&Field::Length))
    }

    /// What the limits say at `now` of a key that was never seen, to a check of `cost`.
    pub(crate) fn unseen(&self, now: u64, cost: u64) -> OneOrMany<View> {
        self.rules.iter().map(|rule| rule.view(&rule.fresh(), now, cost, 0)).collect()
    }

    /// Whether its keys need a log's chunks and a journal beside the value.
    pub(crate) fn has_companions(&self) -> bool {
        self.policy.options().journal > 0 || self.rules.iter().any(|rule| matches!(rule, Rule::SlidingLog(_)))
    }

    /// Whether a denial may be repeated until its moment without asking again: it would change nothing, and nothing comes
    /// back without notice.
    pub(crate) fn repeats_denials(&self) -> bool {
        let options = self.policy.options();
        !options.count_denied
            && options.journal == 0
            && !self.rules.iter().any(|rule| matches!(rule, Rule::Concurrency(_)))
    }

    /// How long an attempt is remembered: as long as it can matter to a limit or a block.
    pub(crate) fn journal_life(&self) -> u64 {
        let limits = self.policy.limits().iter().map(|limit| limit.period().micros());
        let block = self.policy.options().block_for.map(Period::micros);
        limits.chain(block).max().unwrap_or(0)
    }
}

/// A period as a byte when it is up to 31 of a unit, else as the byte 255 and its microseconds.
fn period_code(limit: &Limit) -> SmallVec<[u8; 8]> {
    if limit.algorithm() == Algorithm::Concurrency {
        return SmallVec::from_slice(&[ANY_PERIOD]);
    }
    let mut period = limit.period();
    if limit.algorithm() != Algorithm::CalendarWindow {
        // Weeks, months and years are only lengths to windows that roll.
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
        // Periods stay below 2^49 µs: the last byte is free to tell 60 weeks from 420 days.
        code[7] |= unit << 4;
    }
    code
}

fn tag(limit: &Limit) -> Tag {
    let number = Algorithm::ALL.iter().position(|algorithm| *algorithm == limit.algorithm()).unwrap_or_default();
    let bucket = matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket);
    (number as u8 + 1, period_code(limit), if bucket { limit.count().max(1) } else { 0 })
}

/// The denominator of a bucket's unit time; 1 for everything else.
fn run(rule: &Rule) -> u64 {
    rule.meter().map_or(1, |meter| meter.run)
}

fn layout(rule: &Rule, count: u64) -> Layout {
    use Field::{Count, Length, Moment};
    let mut fields: SmallVec<[Field; 4]> = match rule {
        Rule::FixedWindow(_) | Rule::CalendarWindow(_) => [Moment, Count].into_iter().collect(),
        Rule::SlidingLog(_) => [Moment, Moment, Moment, Length].into_iter().collect(),
        Rule::SlidingWindow(_) => [Moment, Count, Count, Length].into_iter().collect(),
        Rule::SlidingCounter(_) => [Moment, Count, Count].into_iter().collect(),
        Rule::TokenBucket(_) | Rule::Gcra(_) | Rule::LeakyBucket(_) => [Moment, Count].into_iter().collect(),
        Rule::Concurrency(_) => [Moment, Count, Length].into_iter().collect(),
    };
    if run(rule) > 1 {
        fields.push(Count);
    }
    let largest = rule.capacity().max(count).max(1);
    Layout { fields, width: (8 - largest.leading_zeros() as u8 / 8).min(FULL) }
}

impl Field {
    pub(crate) fn width(self, count: u8) -> u8 {
        match self {
            Self::Moment => MOMENT,
            Self::Count => count,
            Self::Length => LENGTH,
        }
    }
}

/// See `lua/head.lua`.
fn header(shape: &[Tag], layouts: &[Layout], full: bool) -> Vec<u8> {
    let mut header = vec![VERSION << 5 | u8::from(full) << 4 | shape.len() as u8];
    for ((algorithm, period, count), layout) in shape.iter().zip(layouts) {
        let bucket = *count > 0;
        let fractions = bucket && layout.fields.len() == 3;
        header.push(algorithm << 4 | u8::from(fractions) << 3 | layout.width);
        header.extend_from_slice(period);
        if bucket {
            header.extend_from_slice(&count.to_le_bytes()[..usize::from(layout.width)]);
        }
    }
    header
}

/// The numbers of one rule, as its Lua file names them: n, p, d, x, y.
fn numbers(rule: &Rule) -> [u64; 5] {
    use crate::algorithm::Grid;
    let meter =
        |meter: &crate::algorithm::Meter, missing: u64| [meter.capacity, meter.rise, meter.run, meter.ceiling, missing];
    match rule {
        Rule::FixedWindow(rule) => [rule.count, rule.period, 0, 0, 0],
        Rule::CalendarWindow(rule) => match rule.grid {
            Grid::Even { length, shift } => [rule.count, length, 0, shift, 0],
            Grid::Months(months) => [rule.count, 0, months, 0, 0],
        },
        Rule::SlidingLog(rule) => [rule.count, rule.period, 0, 0, 0],
        Rule::SlidingWindow(rule) => [rule.count, rule.period, rule.granule, 0, 0],
        Rule::SlidingCounter(rule) => [rule.count, rule.period, 0, 0, 0],
        Rule::TokenBucket(rule) => meter(rule.meter(), rule.missing()),
        Rule::Gcra(rule) => meter(rule, 0),
        Rule::LeakyBucket(rule) => meter(rule, 0),
        Rule::Concurrency(rule) => [rule.count, rule.ttl, 0, 0, 0],
    }
}

fn format(header: &[u8], layouts: &[Layout], full: bool) -> Vec<u8> {
    let mut format = format!("<c{}", header.len());
    for layout in layouts {
        for field in &layout.fields {
            format += &format!("I{}", field.width(if full { FULL } else { layout.width }));
        }
    }
    if full {
        format += &format!("I{MOMENT}");
    }
    format.into_bytes()
}

/// A text of up to 255 bytes after its length.
fn short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

fn ask(rules: &[Rule], shape: &[Tag], layouts: &[Layout], header: &[u8], full_header: &[u8]) -> Ask {
    let sizes =
        layouts.iter().flat_map(|layout| layout.fields.iter().map(|field| u16::from(field.width(layout.width))));
    let size = header.len() as u16 + sizes.sum::<u16>();
    let slots = 1 + layouts.iter().map(|layout| layout.fields.len()).sum::<usize>() as u8;

    let mut form = Vec::new();
    short(&mut form, header);
    short(&mut form, &format(header, layouts, false));
    form.extend_from_slice(&size.to_le_bytes());
    form.extend_from_slice(header);
    form.resize(form.len() + usize::from(size) - header.len(), 0);

    let (mut rest, mut limits) = (Vec::new(), Vec::new());
    short(&mut rest, full_header);
    short(&mut rest, &format(header, layouts, true));
    let (mut slot, mut list) = (2, slots);
    for (index, (rule, layout)) in rules.iter().zip(layouts).enumerate() {
        let (algorithm, period, _) = &shape[index];
        let fields = layout.fields.len() as u8;
        let counts = layout.fields.iter().filter(|field| **field == Field::Count).count() as u8;
        let listed = layout.fields.contains(&Field::Length);
        list += u8::from(listed);
        limits.extend_from_slice(&[*algorithm, slot, if listed { list } else { 0 }, slot + fields - 1]);
        for number in numbers(rule) {
            limits.extend_from_slice(&(number as f64).to_le_bytes());
        }
        let widest = (1u64 << (8 * layout.width)) - 1;
        rest.extend_from_slice(&[fields, counts]);
        rest.extend_from_slice(&(widest as f64).to_le_bytes());
        short(&mut rest, &[algorithm.to_string().as_bytes(), period].concat());
        // Two limits of one algorithm and period keep their logs apart.
        let twin = shape[..index].iter().filter(|tag| tag.0 == *algorithm && tag.1 == *period).count();
        short(&mut rest, &[period, format!("{twin}:").as_bytes()].concat());
        slot += fields;
    }
    Ask { slots, form, rest, limits }
}
