//! The names of `temporary_keys.rs` in a command that has no stores: nothing is written that has to be removed.

use tidegate::{Builder, Limiter};

use crate::Failure;

/// There are none.
pub(crate) enum TemporaryKeys {}

impl TemporaryKeys {
    pub(crate) fn of(_builder: Builder, _limiter: &Limiter) -> Result<Self, Failure> {
        Err(Failure::argument("this build of the command has no shared stores: leave out --store"))
    }

    pub(crate) fn remove(self) -> Result<(), Failure> {
        match self {}
    }
}

/// A limiter in memory needs no prefix of its own.
pub(crate) fn temporary_prefix(verb: &str) -> String {
    format!("{verb}:")
}

/// No signal is waited for.
pub(crate) fn exit_code() -> Option<u8> {
    None
}
