//! Encodes an instruction of the script: an operation with the numbers of its policy. `lua/instruction.lua` has the format.

use smallvec::SmallVec;

use super::arrangement::Times;
use super::request::Request;
use crate::plan::Plan;
use crate::store::request::{LinePlace, Operation};

/// Names the operations once: their numbers, and their names in the sources of the script.
macro_rules! operations {
    ($($name:ident = $number:literal,)+) => {
        $(const $name: u8 = $number;)+

        /// The names and numbers of the operations.
        #[cfg(feature = "bench")]
        pub(super) const OPERATIONS: [(&str, u8); [$($number),+].len()] = [$((stringify!($name), $name)),+];
    };
}

operations! {
    CHECK = 1,
    PEEK = 2,
    CHARGE = 3,
    REFUND = 4,
    BLOCK = 5,
    RENEW = 6,
    CLOSE = 7,
    CLEAR = 8,
    JOURNAL = 9,
    TAKE = 11,
    SURCHARGE = 12,
    LEASE = 13,
    GIVE_BACK = 14,
    OVERRIDE = 15,
    NOTE_OVERRIDE = 16,
    LIST_OVERRIDES = 17,
    TURN = 18,
    LEAVE = 19,
    OBSERVE = 20,
    NOTE_DENIAL = 21,
}

/// Bytes between the length of the slow path's part and the part that the plan holds.
const SLOW_PATH_HEAD: u16 = 35;

/// Flags beside the number of lengths of a block: calls are counted before anything is learned, only learned limits
/// apply to them, and an override of the key follows.
const LEARNS: u8 = 32;
const ASKS: u8 = 64;
const HAS_OVERRIDE: u8 = 128;

/// Bytes for the place of a caller in the line.
const LINE_PLACE: usize = 3 * size_of::<f64>();

/// Bytes before the parts that the plan holds.
const OPERATION_HEAD: usize = 12;

/// The bytes of an instruction.
pub(super) fn size(request: &Request) -> usize {
    let (policy, meta) = (&request.plan.stored.script_arguments, trailer_size(request));
    let of_plan = policy.compact_form.len() + policy.limits.len() + policy.slow_path.len();
    OPERATION_HEAD + of_plan + size_of::<u16>() + usize::from(SLOW_PATH_HEAD) + override_size(&request.plan) + meta
}

/// The bytes of the override that a call brings for its key.
fn override_size(plan: &Plan) -> usize {
    let text = plan.stored_override();
    if text.is_empty() { 0 } else { size_of::<u16>() + text.len() }
}

/// Bytes of a limit before its count, and of all its numbers.
const LIMIT_HEAD: usize = 4;
const LIMIT_NUMBERS: usize = 5 * size_of::<f64>();

/// Appends the numbers of the limits. A custom calendar hands over the edges around `now`, because the script knows no
/// calendar. Returns the times at which these edges hold.
fn write_limits(plan: &Plan, now: Option<u64>, out: &mut Vec<u8>) -> Times {
    let begins = out.len();
    out.extend_from_slice(&plan.stored.script_arguments.limits);
    let mut times = Times::ALL;
    if !plan.has_calendar {
        return times;
    }
    let of_limits = out[begins..].chunks_exact_mut(LIMIT_HEAD + LIMIT_NUMBERS);
    for (rule, bytes) in plan.rules.iter().zip(of_limits) {
        if let Some(calendar) = rule.calendar() {
            let edges = now.map_or_else(|| calendar.last_known(), |now| calendar.around(now));
            times = times.within(Times { from: edges[0], until: edges[3] });
            let edges = edges.map(|edge| edge as f64);
            let numbers = [edges[0], -1.0 - edges[1], edges[2], edges[3]];
            for (slot, number) in bytes[LIMIT_HEAD + size_of::<f64>()..].chunks_exact_mut(size_of::<f64>()).zip(numbers)
            {
                slot.copy_from_slice(&number.to_le_bytes());
            }
        }
    }
    times
}

/// Appends an instruction that decides by `now`, or by a time of the server close to the last known one. Returns the
/// times at which the instruction is valid.
pub(super) fn write(request: &Request, now: Option<u64>, out: &mut Vec<u8>) -> Times {
    let (plan, options) = (&request.plan, request.plan.policy.options());
    let block_for = options.block_for.as_ref().map_or(0, |lengths| lengths.of_level(1).micros());
    let (operation, block, hold) = match &request.operation {
        Operation::Check { hold, .. } => (CHECK, block_for, *hold),
        Operation::Acquire { hold, .. } => (CHECK, 0, *hold),
        Operation::NoteDenial { .. } => (NOTE_DENIAL, 0, 0),
        Operation::Leave { waiter } => (LEAVE, 0, *waiter),
        Operation::Observe(said) => (OBSERVE, said.wait, 0),
        Operation::Turn { within, .. } => (TURN, block_for, *within),
        Operation::Take { .. } => (TAKE, block_for, 0),
        Operation::Peek { .. } => (PEEK, 0, 0),
        Operation::Charge { .. } => (CHARGE, 0, 0),
        Operation::Surcharge { .. } => (SURCHARGE, 0, 0),
        Operation::Refund { .. } => (REFUND, 0, 0),
        Operation::Block { micros } => (BLOCK, *micros, 0),
        Operation::Renew { hold } => (RENEW, 0, *hold),
        Operation::Close { hold } => (CLOSE, 0, *hold),
        Operation::Lease(terms) => (LEASE, 0, terms.life),
        Operation::GiveBack { charge, .. } => (GIVE_BACK, charge.at, charge.life),
        Operation::Clear => (CLEAR, 0, 0),
        Operation::Journal => (JOURNAL, 0, 0),
        Operation::Override(change) => (OVERRIDE, change.ttl, 0),
        Operation::NoteOverride(change) => (NOTE_OVERRIDE, change.ttl, 0),
        Operation::ListOverrides => (LIST_OVERRIDES, 0, 0),
    };
    let amounts = amounts(request);
    let flags = u8::from(options.shadow)
        | u8::from(plan.charges_denials && !matches!(request.operation, Operation::Acquire { .. })) << 1
        | u8::from(plan.grace > 0) << 2
        | u8::from(block > 0) << 3
        | u8::from(hold > 0) << 4
        | u8::from(request.operation.line().is_some() || takes_another_turn(&request.operation)) << 5
        | u8::from(matches!(&request.operation, Operation::GiveBack { charge, .. } if charge.is_last)) << 5
        | u8::from(matches!(&request.operation, Operation::GiveBack { charge, .. } if charge.is_undone)) << 6
        | u8::from(options.journal > 0 && matches!(request.operation, Operation::Acquire { .. })) << 6
        | u8::from(!amounts.is_empty()) << 7;
    let policy = &plan.stored.script_arguments;
    let push_double = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&(number as f64).to_le_bytes());
    out.extend_from_slice(&[operation, flags, plan.rules.len() as u8, policy.slots]);
    push_double(out, request.only_units().unwrap_or(request.operation.named_cost()));
    out.extend_from_slice(&policy.compact_form);
    let times = write_limits(plan, now, out);
    out.extend_from_slice(&(policy.slow_path.len() as u16 + SLOW_PATH_HEAD + override_size(plan) as u16).to_le_bytes());
    push_double(out, block);
    push_double(out, hold);
    out.extend_from_slice(&(options.journal as u16).to_le_bytes());
    push_double(out, plan.journal_life() / 1_000 + 500);
    push_double(out, plan.grace);
    let levels = options.block_for.as_ref().filter(|_| plan.level_life > 0);
    let overriding = plan.stored_override().as_bytes();
    let has_override = if overriding.is_empty() { 0 } else { HAS_OVERRIDE };
    let learns = plan.policy.learning().map_or(0, |learning| LEARNS | if learning.asks { ASKS } else { 0 });
    out.push(levels.map_or(0, |lengths| lengths.lengths().len() as u8) | has_override | learns);
    out.extend_from_slice(&policy.slow_path);
    if has_override > 0 {
        out.extend_from_slice(&(overriding.len() as u16).to_le_bytes());
        out.extend_from_slice(overriding);
    }
    match &request.operation {
        Operation::GiveBack { charge, .. } => {
            let known = [charge.generation, charge.refunded, charge.cleared_at, charge.units];
            known.into_iter().for_each(|number| push_double(out, number));
            let limits = charge.limits.iter();
            limits.for_each(|empty_at| out.extend_from_slice(&empty_at.map_or(-1.0, |at| at as f64).to_le_bytes()));
            amounts.into_iter().flatten().for_each(|number| push_double(out, number));
        }
        Operation::Observe(said) => {
            out.extend_from_slice(&said.calls.map_or(-1.0, |calls| calls as f64).to_le_bytes());
            let numbers = said.limits.iter().flat_map(|limit| limit.numbers());
            numbers.for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
        Operation::Override(change) => out.extend_from_slice(change.text.as_bytes()),
        Operation::NoteOverride(change) => {
            out.extend_from_slice(&(change.key.len() as u16).to_le_bytes());
            out.extend_from_slice(change.key.as_bytes());
            out.extend_from_slice(change.text.as_bytes());
        }
        operation => {
            amounts.into_iter().flatten().for_each(|number| push_double(out, number));
            if let Some(LinePlace { waiter, age, next_age }) = operation.line() {
                push_double(out, waiter);
                push_double(out, age);
                out.extend_from_slice(&next_age.map_or(-1.0, |age| age as f64).to_le_bytes());
            }
            if let Operation::Turn { instead_of: at @ 1.., .. } = operation {
                push_double(out, *at);
            }
            out.extend_from_slice(operation.metadata().unwrap_or_default());
        }
    }
    times
}

/// True if its caller gives up another turn for it.
const fn takes_another_turn(operation: &Operation) -> bool {
    matches!(operation, Operation::Turn { instead_of: 1.., .. })
}

/// The pair of numbers that an operation has for each limit, unless all limits take its cost.
fn amounts(request: &Request) -> SmallVec<[[u64; 2]; 3]> {
    match &request.operation {
        Operation::GiveBack { charge, .. } => {
            charge.amounts.iter().map(|amount| [amount.back, amount.charged]).collect()
        }
        _ if request.only_units().is_some() => SmallVec::new(),
        operation => {
            operation.amounts().unwrap_or_default().iter().map(|amount| [amount.units, amount.reserve]).collect()
        }
    }
}

/// The bytes behind the plan's part: metadata, amounts, and the known facts of a charge.
fn trailer_size(request: &Request) -> usize {
    let amounts = amounts(request).len() * size_of::<[f64; 2]>();
    amounts
        + match &request.operation {
            Operation::GiveBack { charge, .. } => (4 + charge.limits.len()) * size_of::<f64>(),
            Operation::Observe(said) => size_of::<f64>() + said.limits.len() * size_of::<[f64; 10]>(),
            Operation::Override(change) => change.text.len(),
            Operation::NoteOverride(change) => size_of::<u16>() + change.key.len() + change.text.len(),
            operation => {
                let line = if operation.line().is_some() { LINE_PLACE } else { 0 };
                let turn = if takes_another_turn(operation) { size_of::<f64>() } else { 0 };
                line + turn + operation.metadata().map_or(0, <[u8]>::len)
            }
        }
}
