//! Makes the operation of a store from the arguments of a call.

use std::time::Duration;

use std::sync::Arc;

use super::cost::{Cost, Taken, Units};
use crate::algorithm::HoldId;
use crate::error::{Error, Result};
use crate::plan::{MAX_METADATA, Plan};
use crate::policy::declaration::{OptionDeclaration, OptionDefault, declared_options};
use crate::policy::{Algorithm, Limit, Policy};
use crate::store::request::{Details, LinePlace, Operation};

/// The longest metadata of an attempt, in bytes.
pub const MAX_META: usize = MAX_METADATA;

const COST: OptionDeclaration = declared_options! {
    /// The units of the call: a number, or numbers by the names of units, for limits with units such as tokens.
    cost: Cost = Count(1);
}[0];
const META: OptionDeclaration = declared_options! {
    /// Metadata that the journal keeps with the attempt.
    meta: Meta;
}[0];
const PARTIAL: OptionDeclaration = declared_options! {
    /// Take the units that are left, up to the cost. `granted` is their number. Without any, the check is denied.
    partial: Flag = Flag(false);
}[0];
const PRIORITY: OptionDeclaration = declared_options! {
    /// The class of the call, one of the policy's `priorities`. The call leaves the part of its class free.
    priority: Priority;
}[0];
const TIMEOUT: OptionDeclaration = declared_options! {
    /// The longest time to wait.
    timeout: Wait = Words("as long as it takes");
}[0];
const HOLD_TIMEOUT: OptionDeclaration = declared_options! {
    /// The longest time to wait for room. Without an end, the call waits until there is room.
    timeout: Wait = Count(0);
}[0];
const SIGNAL: OptionDeclaration = declared_options! {
    /// An `AbortSignal` that cancels the waiting: the call then rejects with the signal's reason.
    signal: Signal;
}[0];

const DECISION: OptionDeclaration = declared_options! {
    /// The Decision of the answered call. Tidegate then adds the units that were charged since to the usage in the response.
    decision: Decision;
}[0];
const TTL: OptionDeclaration = declared_options! {
    /// The time until the override ends.
    ttl: Wait = Words("until they are removed");
}[0];

/// The options of each call that has any.
pub const CALL_OPTIONS: &[(&str, &[OptionDeclaration])] = &[
    ("check", &[COST, META, PARTIAL, PRIORITY]),
    ("peek", &[COST, PRIORITY]),
    ("charge", &[OptionDeclaration { default: OptionDefault::Required, ..COST }]),
    ("refund", &[COST]),
    ("acquire", &[COST, TIMEOUT, META, PRIORITY, SIGNAL]),
    ("hold", &[COST, HOLD_TIMEOUT, PRIORITY, META, SIGNAL]),
    ("observe", &[DECISION]),
    ("override", &[TTL]),
];

/// The options of a check.
///
/// A minor version may add an option. Code that ends its options with `..CheckOptions::default()` still compiles:
/// `CheckOptions { cost: 3, ..CheckOptions::default() }`.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Units it consumes.
    pub cost: u64,
    /// Units of limits that name their unit, beside the cost.
    pub units: Units,
    /// The metadata for the journal.
    pub meta: Option<Vec<u8>>,
    /// Takes the units that there are, up to the cost, and `Decision::granted` is their number. It is denied if there are none.
    pub partial: bool,
    /// The class of the call, one of the policy's [`priorities`](crate::Options::priorities). It leaves a part of each limit free.
    pub priority: Option<String>,
}

impl CheckOptions {
    pub(crate) const fn of_cost(cost: u64) -> Self {
        Self { cost, units: Units::NONE, meta: None, partial: false, priority: None }
    }
}

/// The cost, without the other options.
impl From<CheckOptions> for Cost {
    fn from(CheckOptions { cost: number, units, .. }: CheckOptions) -> Self {
        Self { number, units }
    }
}

impl From<Cost> for CheckOptions {
    fn from(Cost { number: cost, units }: Cost) -> Self {
        Self { units, ..Self::of_cost(cost) }
    }
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self::of_cost(1)
    }
}

/// The error of `hold` for a policy without anything to hold, and of other calls that consume for a policy that needs `hold`.
fn wrong_call(call: &str, policy: &Policy) -> Error {
    let name = policy.name();
    let held = policy.limits().iter().find(|limit| limit.algorithm() == Algorithm::Concurrency);
    Error::config(match held {
        Some(limit) => format!(
            "{call}: {name:?} has the limit \"{limit}\", and no call could give back the units that {call} takes of it; take \
             them with hold"
        ),
        None => format!(
            "hold: {name:?} has no concurrency limit, so there would be nothing to give back; ask with check, or wait with \
             acquire"
        ),
    })
}

/// # Errors
/// `cost_invalid`, and `config_invalid` for metadata that is too long, for a policy that cannot be checked partially,
/// and for one with units that only a hold can take.
pub(crate) fn check_operation(options: &CheckOptions, plan: &Plan) -> Result<Operation> {
    let operation = operation(options, plan)?;
    if plan.is_held { Err(wrong_call("check", &plan.policy)) } else { Ok(operation) }
}

/// A check of any policy.
pub(super) fn unheld_operation(options: &CheckOptions, plan: &Plan) -> Result<Operation> {
    operation(options, plan)
}

pub(super) fn operation(options: &CheckOptions, plan: &Plan) -> Result<Operation> {
    let Taken { cost, mut amounts } = Taken::of(options.cost, &options.units, options.priority.as_deref(), plan)?;
    if options.partial {
        can_be_partial(&plan.policy)?;
        // A partial check asks about one unit of each.
        amounts.iter_mut().for_each(|amount| amount.units = 1);
    }
    if let Some(meta) = options.meta.as_ref().filter(|meta| meta.len() > MAX_META) {
        return Err(Error::config(format!("meta has {} bytes: it may have at most {MAX_META}", meta.len())));
    }
    // The script of Redis does not distinguish empty metadata from none, so both are none everywhere.
    let meta = options.meta.as_deref().filter(|meta| !meta.is_empty()).map(Into::into);
    let details = Details { meta, amounts, line: None }.shared();
    if !options.partial {
        return Ok(Operation::Check { cost, hold: 0, details });
    }
    Ok(Operation::Take { cost, details })
}

/// An operation with a cost and nothing else. `make` makes it from the cost.
pub(super) fn of_cost(
    cost: &Cost,
    plan: &Plan,
    make: impl FnOnce(u64, Option<Arc<Details>>) -> Operation,
) -> Result<Operation> {
    let Taken { cost, amounts } = Taken::of(cost.number, &cost.units, None, plan)?;
    Ok(make(cost, Details { amounts, ..Details::default() }.shared()))
}

/// A peek, which has a cost and a class.
pub(super) fn peek_operation(options: &CheckOptions, plan: &Plan) -> Result<Operation> {
    if options.partial || options.meta.is_some() {
        return Err(Error::config(
            "peek has no partial and no meta, because it consumes nothing and leaves no trace: use check",
        ));
    }
    let Taken { cost, amounts } = Taken::of(options.cost, &options.units, options.priority.as_deref(), plan)?;
    Ok(Operation::Peek { cost, details: Details { amounts, ..Details::default() }.shared() })
}

/// A check that waits, holds units or is one of several. It is granted as a whole or not at all.
///
/// # Errors
/// Those of [`check_operation`], and `config_invalid` for a partial check, and for a hold of a policy without anything to hold.
pub(super) fn whole_operation(call: &str, options: &CheckOptions, plan: &Plan, hold: HoldId) -> Result<Operation> {
    if options.partial {
        return Err(Error::config(format!(
            "{call} has no partial, because it takes its cost as a whole or not at all: use check"
        )));
    }
    match operation(options, plan)? {
        _ if plan.is_held != (hold != 0) => Err(wrong_call(call, &plan.policy)),
        Operation::Check { cost, details, .. } => Ok(Operation::Check { cost, hold, details }),
        other => Ok(other),
    }
}

/// One attempt of a caller that waits, with its place in the line.
pub(super) fn attempt(operation: &Operation, line: Option<LinePlace>) -> Operation {
    match operation {
        Operation::Check { cost, hold, details } => {
            let Details { meta, amounts, .. } = details.as_deref().cloned().unwrap_or_default();
            let details = Details { meta, amounts, line }.shared();
            Operation::Acquire { cost: *cost, hold: *hold, details }
        }
        other => other.clone(),
    }
}

/// The rank of a call's class in the line. Lower ranks come first.
pub(super) fn rank(options: &CheckOptions, plan: &Plan) -> u64 {
    let priorities = plan.policy.options().priorities.as_ref().zip(options.priority.as_deref());
    priorities.map_or(0, |(priorities, class)| priorities.rank_of(class))
}

/// A caller could not use a part of a hold, or a delay for a part of the work.
fn can_be_partial(policy: &Policy) -> Result<()> {
    let whole = |limit: &&Limit| matches!(limit.algorithm(), Algorithm::Concurrency | Algorithm::LeakyBucket);
    if let Some(limit) = policy.limits().iter().find(|limit| limit.unit().is_some()) {
        return Err(Error::config(format!(
            "partial: {:?} has the limit \"{limit}\", which counts units of its own, and a part of a call is the same of each; check \
             it without partial",
            policy.name()
        )));
    }
    match policy.limits().iter().find(whole) {
        None => Ok(()),
        Some(limit) => Err(Error::config(format!(
            "partial: {:?} has the limit \"{limit}\", which admits a cost as a whole or not at all; {} it without \
             partial, or give the limits that may be granted in part a policy of their own",
            policy.name(),
            if limit.algorithm() == Algorithm::Concurrency { "hold" } else { "check" },
        ))),
    }
}

/// Blocks a key for `length`.
pub(super) fn block_operation(length: Duration) -> Result<Operation> {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let longest = Duration::from_secs(3_660 * 86_400);
    if micros == 0 || length > longest {
        return Err(Error::config(format!("a block of {length:?} is out of range: it must be up to 10 years")));
    }
    Ok(Operation::Block { micros })
}
