//! Options of limiters, calls and web layers as data. Every host makes its types, documentation and checks from them.

use std::time::Duration;

/// The kind of value that an option takes. A host without a type for a kind does not have the option.
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
    /// A length of time as a number: seconds in Python, milliseconds in Node, where the names end with `Ms`.
    Duration,
    /// As `Duration`. Nothing means to wait as long as it takes.
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
    /// The answer of a check when the store fails.
    OnStoreError,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One URL or several, or a rollout.
    Store,
    /// Policies by name.
    Policies,
    /// A clock for tests.
    Clock,
    /// A function that gets each change of a store.
    Listener,
    /// A function that gets each key that comes near a limit.
    NearListener,
    /// A part of a whole, up to 1.
    Part,
    /// Takes lines, in Node.
    Logger,
    /// A function that gets a warning, in Rust.
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

/// The value of an option that the caller leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionDefault {
    /// Nothing.
    Nothing,
    /// The caller has to pass it.
    Required,
    /// A value that depends on something else, in words.
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

/// An option as callers in one host see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionDeclaration {
    /// The name in Rust and in Python. The name in Node follows from it.
    pub name: &'static str,
    /// The kind of value that it takes.
    pub kind: ArgumentKind,
    /// The value if the caller leaves it out.
    pub default: OptionDefault,
    /// Its purpose. A sentence that begins with `In Python` or `In Node` is only for that host. Names of options are spelled as in
    /// Rust.
    pub documentation: &'static str,
}

/// Declares a constant with options. Each has its documentation, its name, the kind of value that it takes, and its default.
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
