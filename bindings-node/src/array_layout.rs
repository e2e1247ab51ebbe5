//! The numbers that Rust and TypeScript share: how calls and answers lie in the arrays through which they cross.
//!
//! They are defined only here. The build writes them into `binding/index.d.ts`, and the TypeScript compiler from there into the
//! code that uses them.
//!
//! Three arrays belong to an open limiter:
//! - `calls` has [`CallField::Length`] numbers for each call. Its last number says how many calls there are.
//! - `key_text` has the keys of those calls as UTF-16 units, one after the other.
//! - `answers` has one record after the other. Its last number says how many calls should cross together next, because
//!   callers that were answered together mostly call again together: see `host::cohort_size`. Before it are the
//!   [`DENIAL_GENERATIONS`].

use napi_derive::napi;

/// Where the numbers of one call stand in `calls`.
#[napi]
pub enum CallField {
    /// Names the call; its answer has the same ticket.
    Ticket = 0,
    /// The number of the policy.
    Policy = 1,
    /// What to do: a [`CallKind`].
    Kind = 2,
    /// The cost.
    Cost = 3,
    /// The length of the key in `key_text`.
    KeyLength = 4,
    /// How many numbers a call has.
    Length = 5,
}

/// What a call does.
#[napi]
pub enum CallKind {
    /// Asks and consumes.
    Check = 0,
    /// Asks without consuming.
    Peek = 1,
    /// Consumes even past the limit.
    Charge = 2,
    /// Gives back.
    Refund = 3,
    /// A partial check: consumes what there is, up to the cost.
    Take = 4,
}

/// What a task about one key does. It crosses alone.
#[napi]
pub enum TaskKind {
    /// Waits until a check is admitted.
    Acquire = 0,
    /// Takes units of a `concurrency` limit.
    Hold = 1,
    /// Denies the key for some time.
    Block = 2,
    /// Ends a block.
    Unblock = 3,
    /// Forgets the key's usage.
    Clear = 4,
    /// The newest attempts.
    Journal = 5,
}

/// Where the numbers of an answer stand in its record.
#[napi]
pub enum AnswerField {
    /// The ticket of the call.
    Ticket = 0,
    /// What the answer is, its flags and its counts. The numbers of a Decision begin here: see [`DecisionField`].
    Header = 1,
    /// For an attachment its number; for a group the index of the entry whose Decision stands for the group.
    Value = 2,
}

/// What an answer is: the bits of its header in [`Header::KindMask`].
#[napi]
pub enum AnswerKind {
    /// A Decision.
    Decision = 0,
    /// The Decision of `checkAll`: the records of its entries follow.
    Group = 1,
    /// A call that only had to be done is done.
    Nothing = 2,
    /// An attachment: an error.
    Error = 3,
    /// An attachment: a hold. The record of its Decision follows.
    Hold = 4,
    /// An attachment: the attempts of a journal.
    Attempts = 5,
}

/// Where the parts of a header are.
#[napi]
pub enum Header {
    /// The first bit of the number of the source of a Decision: 4 bits, as in [`Header::KindMask`].
    SourceShift = 8,
    /// The bits of the [`AnswerKind`].
    KindMask = 15,
    /// The first bit of the number of limits, or of a group's entries.
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
    /// The policy has one limit, and the Decision says everything about it.
    Simple = 128,
    /// It is denied because the store is missing.
    Unavailable = 4096,
}

/// Where the numbers of a Decision stand, counted from its header. Times are in microseconds.
#[napi]
pub enum DecisionField {
    /// The header of the record.
    Header = 0,
    /// The capacity of the limit that binds.
    Limit = 1,
    /// What is left of it.
    Remaining = 2,
    /// How long to wait; [`Special::Never`] when waiting does not help.
    RetryAfter = 3,
    /// How long until the limit is as if unused.
    ResetAfter = 4,
    /// The moment since 1970 at which it is as if unused.
    ResetAt = 5,
    /// How long to wait before going.
    Delay = 6,
    /// The units that were consumed.
    Granted = 7,
    /// How long the denial may be repeated without a call.
    DeniedFor = 8,
    /// The store's time of the answer.
    At = 9,
    /// How long until the same check is admitted again; [`Special::Never`] when waiting does not help.
    NextAfter = 10,
    /// The whole seconds until the limit that binds admits more units than now; [`Special::Never`] where the fields of a response do not
    /// say it.
    MoreAfter = 11,
    /// What else a settle has to know: see [`charge_mark`](tidegate::host::charge_mark).
    Charge = 12,
    /// Which generation a denial is of. It may be repeated while that is the current one: see [`DENIAL_GENERATIONS`].
    DenialGeneration = 13,
    /// The limits begin here: [`LimitField::Length`] numbers for each, or with `Simple` one number, its [`LimitField::Kind`].
    Limits = 14,
}

/// Where the numbers of a limit stand.
#[napi]
pub enum LimitField {
    /// Period in microseconds times [`ALGORITHM_COUNT`], plus the number of the algorithm.
    Kind = 0,
    /// The capacity.
    Limit = 1,
    /// What is left.
    Remaining = 2,
    /// How long to wait; [`Special::Never`] when waiting does not help.
    RetryAfter = 3,
    /// How long until the limit is as if unused.
    ResetAfter = 4,
    /// Its [`LimitFlag`]s.
    Flags = 5,
    /// How long until it admits the same cost again; [`Special::Never`] when waiting does not help.
    NextAfter = 6,
    /// Units that are used beyond it.
    Over = 7,
    /// How many numbers a limit has.
    Length = 8,
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
}

/// How many generations of denials there are. The current one of a denial is at its remainder by this.
#[napi]
pub const DENIAL_GENERATIONS: u32 = tidegate::host::DENIAL_GENERATIONS as u32;

/// Numbers that stand for something else.
#[napi]
pub enum Special {
    /// A wait that never ends.
    Never = -1,
    /// What a crossing returns instead of a count when the answers do not fit into `answers`: `overflow` has them.
    TooMany = -2,
}

/// Tickets from here on belong to tasks, and TypeScript uses each of them once: a task that was cancelled may still be
/// answered. Tickets below belong to calls and are used again.
#[napi]
pub const FIRST_TASK_TICKET: f64 = 281_474_976_710_656.0;
