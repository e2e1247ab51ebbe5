//! Options of limiters, calls and web layers as data: every host makes its types, its documentation and its checks of them.

use std::time::Duration;

/// What an option takes. Each host has its own type for it; a kind that a host has no type for is no option there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// True or false.
    Flag,
    /// True, false, or nothing.
    OptionalFlag,
    /// A text.
    Text,
    /// A text or bytes that no message shows.
    Secret,
    /// A length of time as a number: seconds in Python, milliseconds in Node, whose names of them end with `Ms`.
    Duration,
    /// As `Duration`, or nothing for as long as it takes.
    Wait,
    /// As `Duration`, or a text such as `10m`.
    Period,
    /// As `Period`, or several of them.
    Periods,
    /// Limits by keys.
    Overrides,
    /// A whole number from 1 on.
    Count,
    /// A number of units, or a part such as `5%`.
    Lease,
    /// Classes of calls by name, each with a part such as `30%`.
    Priorities,
    /// The name of a class of calls.
    Priority,
    /// The name of a class of calls, or a function of the request.
    RequestPriority,
    /// What a check answers when the store fails.
    OnStoreError,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One URL or several, or a rollout.
    Store,
    /// Policies by name.
    Policies,
    /// A clock for tests.
    Clock,
    /// A function of a change of a store.
    Listener,
    /// Takes lines, in Node.
    Logger,
    /// A function of a warning, in Rust.
    WarningListener,
    /// A number of checks, in Rust.
    BatchSize,
    /// A number of units, or numbers by the names of units.
    Cost,
    /// A text or bytes.
    Meta,
    /// An `AbortSignal`, in Node.
    Signal,
    /// The Decision of a call.
    Decision,
    /// A limiter.
    Limiter,
    /// One policy or several, or a function of the request.
    PolicyChoice,
    /// One policy or several.
    PolicyList,
    /// A function of the request that returns its key.
    RequestKey,
    /// A number of units, numbers by the names of units, or a function of the request.
    RequestCost,
    /// A text or bytes, or a function of the request.
    RequestMeta,
    /// A function of the request that returns true or false.
    RequestFunction,
    /// A function of the request and its response that returns true or false.
    ResponseFunction,
    /// A function of the request and its response that returns units.
    ActualCost,
    /// A function of a refused request and its Decision.
    Refusal,
    /// Which fields announce limits.
    Headers,
    /// Methods of HTTP.
    Methods,
}

/// What an option is where it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionDefault {
    /// Nothing.
    Nothing,
    /// It has to be given.
    Required,
    /// A value that follows from elsewhere, in words.
    Words(&'static str),
    /// A text.
    Text(&'static str),
    /// True or false.
    Flag(bool),
    /// A whole number.
    Count(usize),
    /// A length of time.
    Duration(Duration),
}

/// An option as its host's callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionDeclaration {
    /// The name in Rust and in Python; Node's follows from it.
    pub name: &'static str,
    /// What it takes.
    pub kind: ArgumentKind,
    /// What it is where it is not given.
    pub default: OptionDefault,
    /// What it is for. A sentence that begins with `In Python` or `In Node` is only for that host. Names of options are spelled as in
    /// Rust.
    pub documentation: &'static str,
}

/// Declares a constant with options: of each its documentation, its name, what it takes, and what it is where it is not given.
macro_rules! declared_options {
    ($($(#[doc = $documentation:literal])+ $name:ident: $kind:ident $(($words:expr))? $(= $default:ident $(($value:expr))?)?;)+) => {
        &[$($crate::policy::declaration::OptionDeclaration {
            name: stringify!($name),
            kind: $crate::policy::declaration::ArgumentKind::$kind $(($words))?,
            default: declared_options!(@default $($default $(($value))?)?),
            documentation: concat!($($documentation),+).trim_ascii_start(),
        }),+]
    };
    (@default) => { $crate::policy::declaration::OptionDefault::Nothing };
    (@default $default:ident $(($value:expr))?) => { $crate::policy::declaration::OptionDefault::$default $(($value))? };
}

pub(crate) use declared_options;
