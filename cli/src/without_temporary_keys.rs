//! The names of `temporary_keys.rs` in a command without stores, which writes nothing that it has to remove.

use tidegate::{Builder, Limiter};

use crate::{Result, invalid};

/// There are none.
pub(crate) enum TemporaryKeys {}

impl TemporaryKeys {
    pub(crate) fn of(_builder: Builder, _limiter: &Limiter) -> Result<Self> {
        Err(invalid("this build of the command has no shared stores: leave out --store"))
    }

    pub(crate) fn remove(self) -> Result<()> {
        match self {}
    }
}

/// A limiter in memory needs no unique prefix.
pub(crate) fn temporary_prefix(verb: &str) -> String {
    format!("{verb}:")
}

/// This command waits for no signal.
pub(crate) fn exit_code() -> Option<u8> {
    None
}
