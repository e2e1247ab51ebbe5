//! The layout that Rust and TypeScript share: the places of the numbers in the arrays that carry calls and answers.
//!
//! Only this file defines it. The build writes the numbers into `binding/index.d.ts`, and from there the TypeScript compiler
//! puts them into the code that uses them.
//!
//! Three arrays belong to an open limiter:
//! - `calls` has [`CallField::Length`] numbers for each call. Its last number is the number of calls.
//! - `key_text` has the keys of those calls as UTF-16 units, one after the other.
//! - `answers` has one record after the other. Its last number is the number of calls that should cross together next.
//!   Callers that were answered together mostly call again together: see `host::cohort_size`. Before it are the
//!   [`DENIAL_GENERATIONS`].

use napi_derive::napi;

/// The places of the numbers of one call in `calls`.
#[napi]
pub enum CallField {
    /// Names the call. Its answer has the same ticket.
    Ticket,
    /// The number of the policy.
    Policy,
    /// The operation: a [`CallKind`].
    Kind,
    /// The cost.
    Cost,
    /// The length of the key in `key_text`.
    KeyLength,
    /// How many numbers a call has.
    Length,
}

/// The kinds of calls.
#[napi]
pub enum CallKind {
    /// Asks and consumes.
    Check,
    /// Asks without consuming.
    Peek,
    /// Consumes even past the limit.
    Charge,
    /// Gives back.
    Refund,
    /// A partial check: consumes what there is, up to the cost.
    Take,
    /// `acquire` of a store in memory, if it does not have to wait. Otherwise nothing is done, and a task has to wait.
    Acquire,
}

/// The operation of a task about one key. It crosses alone.
#[napi]
pub enum TaskKind {
    /// Waits until a check is admitted.
    Acquire,
    /// Takes units of a `concurrency` limit.
    Hold,
    /// Denies the key for some time.
    Block,
    /// Ends a block.
    Unblock,
    /// Forgets the key's usage.
    Clear,
    /// The newest attempts.
    Journal,
}

/// The places of the numbers of an answer in its record.
#[napi]
pub enum AnswerField {
    /// The ticket of the call.
    Ticket,
    /// The kind of the answer, its flags and its counts. The numbers of a Decision begin here: see [`DecisionField`].
    Header,
    /// For an attachment, its number. For a group, the index of the entry with the Decision for the whole group.
    Value,
}

/// The kind of an answer: the bits of its header in [`Header::KindMask`].
#[napi]
pub enum AnswerKind {
    /// A Decision.
    Decision,
    /// The Decision of `checkAll`: the records of its entries follow.
    Group,
    /// A call without a result is done.
    Nothing,
    /// An attachment: an error.
    Error,
    /// An attachment: a hold. The record of its Decision follows.
    Hold,
    /// An attachment: the attempts of a journal.
    Attempts,
    /// An attachment: the keys with overrides.
    Overrides,
    /// The wait of a refused job: its value is microseconds.
    Wait,
    /// The answer to the limits of a request, or the turn of a call that goes out. Its value is the place of the policy that refused and 1
    /// more, or 0. Then comes 1 for a call that waits and asks again, or 0. Then follow, for each hold, the place of its policy and its
    /// number as an attachment. Then the number of recorded steps, and for each: whether it was a hold, when it began and ended in
    /// microseconds from the begin of the first, and the records of its Decision. The records of the whole Decision come last.
    Admission,
}

/// The places of the parts of a header.
#[napi]
pub enum Header {
    /// The first bit of the number of the source of a Decision: 4 bits, as in [`Header::KindMask`].
    SourceShift = 8,
    /// The bits of the [`AnswerKind`].
    KindMask = 15,
    /// The first bit of the number of limits, of a group's entries, or of holds.
    CountShift = 16,
}

/// Flags in the header of a Decision.
#[napi]
pub enum DecisionFlag {
    /// It is allowed.
    Allowed = 16,
    /// A shadow policy would have denied.
    Shadow = 32,
    /// The only limit refused. Only with `Simple`.
    Exceeded = 64,
    /// The policy has one limit, which names no unit, and the Decision says everything about it.
    Simple = 128,
    /// It is denied because the store failed.
    Unavailable = 4096,
    /// It is denied by a block that follows repeated denials.
    Abnormal = 8192,
    /// Its key has an override.
    Overridden = 16384,
    /// A limit that a service reported gave the answer to an outgoing call.
    Learned = 32768,
}

/// The places of the numbers of a Decision, counted from its header. Times are in microseconds.
#[napi]
pub enum DecisionField {
    /// The header of the record.
    Header,
    /// The capacity of the limit that binds.
    Limit,
    /// The units that are left of it.
    Remaining,
    /// The time to wait. [`Special::Never`] if waiting does not help.
    RetryAfter,
    /// The time until the limit is as if it were unused.
    ResetAfter,
    /// The moment since 1970 at which it is as if unused.
    ResetAt,
    /// How long to wait before going.
    Delay,
    /// The units that were consumed.
    Granted,
    /// How long the denial may be repeated without a call.
    DeniedFor,
    /// The store's time of the answer.
    At,
    /// The time until the same check is admitted again. [`Special::Never`] if waiting does not help.
    NextAfter,
    /// The whole seconds until the limit that binds admits more units than now. [`Special::Never`] if the fields of a response do not
    /// have it.
    MoreAfter,
    /// A further number for a settle: see [`charge_mark`](tidegate::host::charge_mark).
    Charge,
    /// For a denial, its generation: it may be repeated while that is the current one, see [`DENIAL_GENERATIONS`]. For an
    /// admitted call, the number of calls of its key that were counted with it, and 1 more. 0 if nothing is learned about the key.
    Generation,
    /// How long before the answer's time its units were charged: see [`turn_length`](tidegate::host::turn_length).
    Turn,
    /// The limits begin here: [`LimitField::Length`] numbers for each, or with `Simple` one number, its [`LimitField::Kind`].
    Limits,
}

/// The places of the numbers of a limit.
#[napi]
pub enum LimitField {
    /// Period in microseconds times [`ALGORITHM_COUNT`], plus the number of the algorithm.
    Kind,
    /// The capacity.
    Limit,
    /// The units that are left.
    Remaining,
    /// The time to wait. [`Special::Never`] if waiting does not help.
    RetryAfter,
    /// The time until the limit is as if it were unused.
    ResetAfter,
    /// Its [`LimitFlag`]s.
    Flags,
    /// The time until it admits the same cost again. [`Special::Never`] if waiting does not help.
    NextAfter,
    /// Units that are used beyond it.
    Over,
    /// The units of it that the call asked for.
    Cost,
    /// How many numbers a limit has.
    Length,
}

/// The factor of the period in [`LimitField::Kind`]: more than there are algorithms.
#[napi]
pub const ALGORITHM_COUNT: u32 = 16;

/// Flags of a limit.
#[napi]
pub enum LimitFlag {
    /// It refused.
    Exceeded = 1,
    /// It is the limit that binds.
    Binds = 2,
    /// The units of it that were asked for were consumed.
    Charged = 4,
}

/// How many generations of denials there are. The current one of a denial is at its remainder by this.
#[napi]
pub const DENIAL_GENERATIONS: u32 = tidegate::host::DENIAL_GENERATIONS as u32;

/// Numbers that stand for something else.
#[napi]
pub enum Special {
    /// A wait that never ends.
    Never = -1,
    /// The result of a crossing if the answers do not fit into `answers`. `overflow` has them.
    TooMany = -2,
}

/// Tickets from here on belong to tasks, and TypeScript uses each of them once: a task that was cancelled may still be
/// answered. Tickets below belong to calls and are used again.
#[napi]
pub const FIRST_TASK_TICKET: f64 = 281_474_976_710_656.0;
