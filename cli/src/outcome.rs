//! What a verb has found, as an exit code.

/// What a verb has found: a limit that denies is no failure of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: a check was denied, a file has warnings, a server needs attention.
    Negative,
    /// Exit code 2: what was looked at cannot be used. The verb has said why.
    Invalid,
}
