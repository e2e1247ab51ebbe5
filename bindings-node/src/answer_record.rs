//! Writes answers as numbers. JavaScript reads them from one array that is used again and again, because an object for every
//! answer would cost more than the answer. [`array_layout`](crate::array_layout) lists the place of each number.

use std::time::{Duration, UNIX_EPOCH};

use napi_derive::napi;
use tidegate::host::{
    Admission, Answered, ChargedLimit, ChargedUnits, calls_of, charge_mark, charged_of_limit, denial_generation,
    has_amounts, turn_length,
};
use tidegate::http::more_after;
use tidegate::{Algorithm, Decision, LimitState, Source};

use crate::array_layout::{
    ALGORITHM_COUNT, AnswerField, AnswerKind, DecisionField, DecisionFlag, Header, LimitField, LimitFlag, Special,
};

const NEVER: f64 = Special::Never as i32 as f64;
const HEADER: usize = AnswerField::Header as usize;
/// The ticket, and the numbers of a Decision before its limits.
const FIXED_LENGTH: usize = HEADER + DecisionField::Limits as usize;

/// The sources, in the order of their numbers.
const SOURCES: [Source; 4] = [Source::Store, Source::DenyCache, Source::Lease, Source::Fallback];

/// The names of the sources, in the order of their numbers.
#[napi(catch_unwind)]
pub fn sources() -> Vec<String> {
    SOURCES.iter().map(|source| source.name().to_owned()).collect()
}

/// The number of a source. A source without a number counts as the store.
fn source_number(source: Source) -> u64 {
    SOURCES.iter().position(|known| *known == source).unwrap_or_default() as u64
}

/// The charged units of the Decision with these numbers, from its header on. `units_named` has the units that its limits name.
pub(crate) fn charged_units(numbers: &[f64], policy_changed: bool, units_named: &[Option<String>]) -> ChargedUnits {
    let number = |field: DecisionField| numbers.get(field as usize).copied().unwrap_or_default();
    let (header, at) = (number(DecisionField::Header) as u64, number(DecisionField::At) as u64);
    let limits = numbers.get(DecisionField::Limits as usize..).unwrap_or_default();
    let granted = number(DecisionField::Granted) as u64;
    let charged = |kind: f64, reset_after: f64, unit: Option<&Option<String>>, units: u64| {
        let (period, algorithm) = (kind as u64 / u64::from(ALGORITHM_COUNT), kind as u64 % u64::from(ALGORITHM_COUNT));
        let algorithm = *Algorithm::ALL.get(algorithm as usize)?;
        Some(ChargedLimit {
            algorithm,
            period,
            empty_at: at + reset_after as u64,
            unit: unit.cloned().flatten(),
            units,
        })
    };
    let limits = if header & DecisionFlag::Simple as u64 == 0 {
        let of_limit = |(index, limit): (usize, &[f64])| {
            let has_charged = limit[LimitField::Flags as usize] as u8 & LimitFlag::Charged as u8 != 0;
            let units = if has_charged { limit[LimitField::Cost as usize] as u64 } else { granted };
            let (kind, reset_after) = (limit[LimitField::Kind as usize], limit[LimitField::ResetAfter as usize]);
            charged(kind, reset_after, units_named.get(index), units)
        };
        limits.chunks_exact(LimitField::Length as usize).enumerate().filter_map(of_limit).collect()
    } else {
        let kind = limits.first();
        kind.and_then(|kind| charged(*kind, number(DecisionField::ResetAfter), None, granted)).into_iter().collect()
    };
    ChargedUnits {
        units: granted,
        source: SOURCES
            .get((header >> Header::SourceShift as u64 & Header::KindMask as u64) as usize)
            .copied()
            .unwrap_or_default(),
        at: at - number(DecisionField::Turn) as u64,
        life: number(DecisionField::Turn) as u64,
        mark: number(DecisionField::Charge),
        limits,
        policy_changed,
    }
}

/// The facts about a call from the numbers of its Decision, from the header on.
pub(crate) fn answered(numbers: &[f64]) -> Answered {
    let number = |field: DecisionField| numbers.get(field as usize).copied().unwrap_or_default();
    let is_allowed = number(DecisionField::Header) as u64 & DecisionFlag::Allowed as u64 != 0;
    let calls = (number(DecisionField::Generation) as u64).checked_sub(1).filter(|_| is_allowed);
    let used = |limit: f64, remaining: f64, over: f64| (limit - remaining).max(0.0) as u64 + over as u64;
    let limits = numbers.get(DecisionField::Limits as usize..).unwrap_or_default();
    let known = if number(DecisionField::Header) as u64 & DecisionFlag::Simple as u64 == 0 {
        let of_limit = |limit: &[f64]| {
            let of = |field: LimitField| limit[field as usize];
            used(of(LimitField::Limit), of(LimitField::Remaining), of(LimitField::Over))
        };
        limits.chunks_exact(LimitField::Length as usize).map(of_limit).collect()
    } else {
        [used(number(DecisionField::Limit), number(DecisionField::Remaining), 0.0)].into_iter().collect()
    };
    Answered {
        calls,
        units: charged_units(numbers, false, &[]).limits.iter().map(|limit| limit.units).collect(),
        known,
    }
}

/// Exact, because every time is less than 2^53 microseconds.
fn micros(length: Duration) -> f64 {
    length.as_secs() as f64 * 1e6 + f64::from(length.subsec_micros())
}

fn wait(length: Option<Duration>) -> f64 {
    length.map_or(NEVER, micros)
}

/// Algorithm and period in one number. A double holds it exactly, because periods end at 10 years.
fn limit_kind(limit: &LimitState) -> f64 {
    let algorithm = Algorithm::ALL.iter().position(|algorithm| *algorithm == limit.algorithm).unwrap_or_default();
    (limit.period.micros() * u64::from(ALGORITHM_COUNT) + algorithm as u64) as f64
}

fn write_limit(out: &mut Vec<f64>, limit: &LimitState, binds: bool, charged: bool) {
    let exceeded = if limit.exceeded { LimitFlag::Exceeded as u8 } else { 0 };
    let binds = if binds { LimitFlag::Binds as u8 } else { 0 };
    let charged = if charged { LimitFlag::Charged as u8 } else { 0 };
    let mut numbers = [0.0; LimitField::Length as usize];
    numbers[LimitField::Kind as usize] = limit_kind(limit);
    numbers[LimitField::Limit as usize] = limit.limit as f64;
    numbers[LimitField::Remaining as usize] = limit.remaining as f64;
    numbers[LimitField::RetryAfter as usize] = wait(limit.retry_after);
    numbers[LimitField::ResetAfter as usize] = micros(limit.reset_after);
    numbers[LimitField::Flags as usize] = f64::from(exceeded | binds | charged);
    numbers[LimitField::NextAfter as usize] = wait(limit.next_after);
    numbers[LimitField::Over as usize] = limit.over as f64;
    numbers[LimitField::Cost as usize] = limit.cost as f64;
    out.extend_from_slice(&numbers);
}

fn write_single(out: &mut Vec<f64>, ticket: u64, decision: &Decision) {
    let mut limits = decision.limits();
    let count = limits.len() as u64;
    let (remaining, retry, reset) = (decision.remaining(), decision.retry_after(), decision.reset_after());
    let next = decision.next_after();
    let simple = (count == 1).then(|| limits.next()).flatten().filter(|limit| {
        let waits = if limit.exceeded { retry } else { Some(Duration::ZERO) };
        (limit.remaining, limit.over, limit.retry_after) == (remaining, 0, waits)
            && (limit.next_after, limit.reset_after) == (next, reset)
            && limit.unit.is_none()
            && limit.cost == decision.cost()
    });
    let source = source_number(decision.source());
    let mut header =
        AnswerKind::Decision as u64 | source << Header::SourceShift as u64 | count << Header::CountShift as u64;
    for (flag, set) in [
        (DecisionFlag::Allowed, decision.allowed()),
        (DecisionFlag::Shadow, decision.shadow()),
        (DecisionFlag::Simple, simple.is_some()),
        (DecisionFlag::Unavailable, decision.unavailable()),
        (DecisionFlag::Abnormal, decision.abnormal()),
        (DecisionFlag::Overridden, decision.overridden()),
        (DecisionFlag::Learned, decision.learned()),
        (DecisionFlag::Exceeded, simple.as_ref().is_some_and(|limit| limit.exceeded)),
    ] {
        header |= if set { flag as u64 } else { 0 };
    }
    let reset_at = decision.reset_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut record = [0.0; FIXED_LENGTH];
    record[AnswerField::Ticket as usize] = ticket as f64;
    record[HEADER + DecisionField::Header as usize] = header as f64;
    record[HEADER + DecisionField::Limit as usize] = decision.limit() as f64;
    record[HEADER + DecisionField::Remaining as usize] = remaining as f64;
    record[HEADER + DecisionField::RetryAfter as usize] = wait(retry);
    record[HEADER + DecisionField::ResetAfter as usize] = micros(reset);
    record[HEADER + DecisionField::ResetAt as usize] = micros(reset_at);
    record[HEADER + DecisionField::Delay as usize] = micros(decision.delay());
    record[HEADER + DecisionField::Granted as usize] = decision.granted() as f64;
    // JavaScript repeats denials by their cost alone.
    let denied_for = decision.denied_for().filter(|_| !has_amounts(decision));
    record[HEADER + DecisionField::DeniedFor as usize] = micros(denied_for.unwrap_or_default());
    record[HEADER + DecisionField::At as usize] = micros(decision.at());
    record[HEADER + DecisionField::NextAfter as usize] = wait(next);
    record[HEADER + DecisionField::Charge as usize] = charge_mark(decision);
    record[HEADER + DecisionField::Turn as usize] = micros(turn_length(decision));
    let counted = || calls_of(decision).map_or(0.0, |calls| calls as f64 + 1.0);
    record[HEADER + DecisionField::Generation as usize] =
        if decision.allowed() { counted() } else { denial_generation(decision).into() };
    record[HEADER + DecisionField::MoreAfter as usize] = more_after(decision).map_or(NEVER, |seconds| seconds as f64);
    out.extend_from_slice(&record);
    match &simple {
        Some(limit) => out.push(limit_kind(limit)),
        None => {
            let binds = decision.binding_index();
            decision.limits().enumerate().for_each(|(index, limit)| {
                let charged = charged_of_limit(decision, index) == limit.cost;
                write_limit(out, &limit, index == binds, charged);
            });
        }
    }
}

/// Writes a Decision. For `check_all` the Decisions of the entries follow, and `Value` is the index of the copied one.
pub(crate) fn write_decision(out: &mut Vec<f64>, ticket: u64, decision: &Decision) {
    let entries = decision.decisions();
    if entries.is_empty() {
        return write_single(out, ticket, decision);
    }
    let is_copied = |entry: &&Decision| {
        (entry.key(), entry.policy(), entry.cost()) == (decision.key(), decision.policy(), decision.cost())
            && (entry.allowed(), entry.remaining(), entry.reset_at())
                == (decision.allowed(), decision.remaining(), decision.reset_at())
    };
    let copied = entries.iter().position(|entry| is_copied(&entry)).unwrap_or_default();
    let header = AnswerKind::Group as u64 | (entries.len() as u64) << Header::CountShift as u64;
    write_value(out, ticket, header, copied as u64);
    for entry in entries {
        write_single(out, ticket, entry);
    }
}

/// Writes the end of a call that has no result.
pub(crate) fn write_nothing(out: &mut Vec<f64>, ticket: u64) {
    out.extend_from_slice(&[ticket as f64, AnswerKind::Nothing as u64 as f64]);
}

/// Writes the wait of a job.
pub(crate) fn write_wait(out: &mut Vec<f64>, ticket: u64, wait: Duration) {
    write_value(out, ticket, AnswerKind::Wait as u64, u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
}

/// Writes the number of an attachment. JavaScript fetches the attachment by it.
pub(crate) fn write_attachment(out: &mut Vec<f64>, ticket: u64, kind: AnswerKind, number: u64) {
    write_value(out, ticket, kind as u64, number);
}

/// Writes the beginning of an [`AnswerKind::Admission`].
pub(crate) fn write_admission_head(out: &mut Vec<f64>, ticket: u64, holds: usize, answer: &Admission) {
    let header = AnswerKind::Admission as u64 | (holds as u64) << Header::CountShift as u64;
    write_value(out, ticket, header, answer.refused_by().map_or(0, |place| place as u64 + 1));
    out.push(f64::from(u8::from(answer.waits())));
}

fn write_value(out: &mut Vec<f64>, ticket: u64, header: u64, value: u64) {
    let mut record = [0.0; AnswerField::Value as usize + 1];
    record[AnswerField::Ticket as usize] = ticket as f64;
    record[AnswerField::Header as usize] = header as f64;
    record[AnswerField::Value as usize] = value as f64;
    out.extend_from_slice(&record);
}
