//! Answers as numbers. JavaScript reads them out of one array that is used again and again: an object for every answer
//! would cost more than the answer. `lib/record.ts` reads what is written here.
//!
//! A record begins with its ticket and a head: what it is, its flags, and how many limits or records follow.

use std::time::{Duration, UNIX_EPOCH};

use tidegate::{Algorithm, Decision, LimitState, Source};

// What a record is, in the low four bits of its head.
pub(crate) const DECISION: u64 = 0;
pub(crate) const GROUP: u64 = 1;
pub(crate) const NOTHING: u64 = 2;
// What is fetched by the number that follows.
pub(crate) const FAILURE: u64 = 3;
pub(crate) const HOLD: u64 = 4;
pub(crate) const ATTEMPTS: u64 = 5;

const ALLOWED: u64 = 1 << 4;
const SHADOW: u64 = 1 << 5;
/// The first limit refused, and says nothing else than the Decision.
const EXCEEDED: u64 = 1 << 6;
/// There is one limit, and the Decision says all about it.
const SIMPLE: u64 = 1 << 7;
const SOURCE: u32 = 8;
const UNAVAILABLE: u64 = 1 << 12;
const COUNT: u32 = 16;

/// Beside whether it refused: this is the limit that binds.
const BINDS: u8 = 2;

/// Stands for what never happens.
const NEVER: f64 = -1.0;

fn micros(length: Duration) -> f64 {
    length.as_micros() as f64
}

fn wait(length: Option<Duration>) -> f64 {
    length.map_or(NEVER, micros)
}

fn source(source: Source) -> u64 {
    match source {
        Source::DenyCache => 1,
        Source::Lease => 2,
        Source::Fallback => 3,
        // A source that is not known yet is the store's.
        _ => 0,
    }
}

/// The source of that number.
pub(crate) const fn source_of(number: u8) -> Source {
    match number {
        1 => Source::DenyCache,
        2 => Source::Lease,
        3 => Source::Fallback,
        _ => Source::Store,
    }
}

/// Algorithm and period in one number: there are nine of the one, and the other ends at 10 years.
fn kind(limit: &LimitState) -> f64 {
    let algorithm = Algorithm::ALL.iter().position(|algorithm| *algorithm == limit.algorithm).unwrap_or_default();
    (limit.period.micros() * 16 + algorithm as u64) as f64
}

fn body(out: &mut Vec<f64>, ticket: u64, decision: &Decision) {
    let mut limits = decision.limits();
    let count = limits.len() as u64;
    let (remaining, retry, reset) = (decision.remaining(), decision.retry_after(), decision.reset_after());
    let simple = (count == 1).then(|| limits.next()).flatten().filter(|limit| {
        let waits = if limit.exceeded { retry } else { Some(Duration::ZERO) };
        (limit.remaining, limit.retry_after, limit.reset_after) == (remaining, waits, reset)
    });
    let mut head = DECISION | source(decision.source()) << SOURCE | count << COUNT;
    for (flag, set) in [
        (ALLOWED, decision.allowed()),
        (SHADOW, decision.shadow()),
        (SIMPLE, simple.is_some()),
        (UNAVAILABLE, decision.unavailable()),
        (EXCEEDED, simple.is_some_and(|limit| limit.exceeded)),
    ] {
        head |= if set { flag } else { 0 };
    }
    let reset_at = decision.reset_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.extend_from_slice(&[
        ticket as f64,
        head as f64,
        decision.limit() as f64,
        remaining as f64,
        wait(retry),
        micros(reset),
        micros(reset_at),
        micros(decision.delay()),
        decision.charged() as f64,
        micros(decision.denied_for().unwrap_or_default()),
        micros(decision.at()),
    ]);
    match simple {
        Some(limit) => out.push(kind(&limit)),
        None => {
            let binds = decision.binding_index();
            for (index, limit) in decision.limits().enumerate() {
                out.extend_from_slice(&[
                    kind(&limit),
                    limit.limit as f64,
                    limit.remaining as f64,
                    wait(limit.retry_after),
                    micros(limit.reset_after),
                    f64::from(u8::from(limit.exceeded) | if index == binds { BINDS } else { 0 }),
                ]);
            }
        }
    }
}

/// Writes a Decision; one of `check_all` with those of its entries, and which of them speaks for all.
pub(crate) fn decision(out: &mut Vec<f64>, ticket: u64, whole: &Decision) {
    let parts = whole.decisions();
    if parts.is_empty() {
        return body(out, ticket, whole);
    }
    // The whole is a copy of one of its parts.
    let same = |part: &&Decision| {
        (part.key(), part.policy(), part.cost()) == (whole.key(), whole.policy(), whole.cost())
            && (part.allowed(), part.remaining(), part.reset_at())
                == (whole.allowed(), whole.remaining(), whole.reset_at())
    };
    let speaker = parts.iter().position(|part| same(&part)).unwrap_or_default();
    out.extend_from_slice(&[ticket as f64, (GROUP | (parts.len() as u64) << COUNT) as f64, speaker as f64]);
    for part in parts {
        body(out, ticket, part);
    }
}

/// Writes that it is done.
pub(crate) fn nothing(out: &mut Vec<f64>, ticket: u64) {
    out.extend_from_slice(&[ticket as f64, NOTHING as f64]);
}

/// Writes that something is to be fetched.
pub(crate) fn attachment(out: &mut Vec<f64>, ticket: u64, what: u64, number: u64) {
    out.extend_from_slice(&[ticket as f64, what as f64, number as f64]);
}
