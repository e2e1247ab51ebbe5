//! Encodes an instruction of the script: an operation with the numbers of its policy. `lua/instruction.lua` has the format.

use super::request::Request;
use crate::policy::Period;
use crate::store::request::Operation;

/// The numbers of the operations in `lua/operation.lua`.
const CHECK: u8 = 1;
const PEEK: u8 = 2;
const CHARGE: u8 = 3;
const REFUND: u8 = 4;
const BLOCK: u8 = 5;
const RENEW: u8 = 6;
const CLOSE: u8 = 7;
const CLEAR: u8 = 8;
const JOURNAL: u8 = 9;
const UNDO: u8 = 10;
const TAKE: u8 = 11;
const SURCHARGE: u8 = 12;
const LEASE: u8 = 13;
const GIVE_BACK: u8 = 14;

/// Bytes between the length of the slow path's part and the part that the plan holds.
const SLOW_PATH_HEAD: u16 = 34;

pub(super) fn encode(request: &Request) -> Vec<u8> {
    let (plan, options) = (&request.plan, request.plan.policy.options());
    let no_meta: &[u8] = &[];
    let block_for = options.block_for.map_or(0, Period::micros);
    let (operation, block, hold, meta) = match &request.operation {
        Operation::Check { hold, meta, .. } => (CHECK, block_for, *hold, meta.as_deref().unwrap_or(no_meta)),
        Operation::Take { meta, .. } => (TAKE, block_for, 0, meta.as_deref().unwrap_or(no_meta)),
        Operation::Peek { .. } => (PEEK, 0, 0, no_meta),
        Operation::Charge { .. } => (CHARGE, 0, 0, no_meta),
        Operation::Surcharge { .. } => (SURCHARGE, 0, 0, no_meta),
        Operation::Refund { .. } => request.charged_at.map_or((REFUND, 0, 0, no_meta), |at| (UNDO, at, 0, no_meta)),
        Operation::Block { micros } => (BLOCK, *micros, 0, no_meta),
        Operation::Renew { hold } => (RENEW, 0, *hold, no_meta),
        Operation::Close { hold } => (CLOSE, 0, *hold, no_meta),
        Operation::Lease(terms) => (LEASE, 0, terms.life, no_meta),
        Operation::GiveBack { terms, taken_at } => (GIVE_BACK, *taken_at, terms.life, no_meta),
        Operation::Clear => (CLEAR, 0, 0, no_meta),
        Operation::Journal => (JOURNAL, 0, 0, no_meta),
    };
    let flags = u8::from(options.shadow)
        | u8::from(options.count_denied) << 1
        | u8::from(plan.grace > 0) << 2
        | u8::from(block > 0) << 3
        | u8::from(hold > 0) << 4;
    let policy = &plan.script_arguments;
    let size = policy.compact_form.len() + policy.limits.len() + policy.slow_path.len() + meta.len();
    let mut out = Vec::with_capacity(size + 40);
    let push_double = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&(number as f64).to_le_bytes());
    out.extend_from_slice(&[operation, flags, plan.rules.len() as u8, policy.slots]);
    push_double(&mut out, request.operation.named_cost());
    out.extend_from_slice(&policy.compact_form);
    out.extend_from_slice(&policy.limits);
    out.extend_from_slice(&(policy.slow_path.len() as u16 + SLOW_PATH_HEAD).to_le_bytes());
    push_double(&mut out, block);
    push_double(&mut out, hold);
    out.extend_from_slice(&(options.journal as u16).to_le_bytes());
    push_double(&mut out, plan.journal_life() / 1_000 + 500);
    push_double(&mut out, plan.grace);
    out.extend_from_slice(&policy.slow_path);
    out.extend_from_slice(meta);
    out
}
