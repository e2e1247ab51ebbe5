//! The outcome of a verb, as an exit code.

/// The outcome of a verb. A limit that denies is no failure of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: a check was denied, a file has warnings, a server needs attention.
    Negative,
    /// Exit code 2: the examined thing cannot be used. The verb has printed the reason.
    Invalid,
}
