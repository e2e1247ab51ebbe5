//! The builder of every limiter of the command.

use tidegate::{Builder, Limiter, host};

/// A builder of a limiter that `tidegate top` does not show, because it shows services and no commands.
pub(crate) fn limiter_builder() -> Builder {
    host::unpublished(Limiter::builder())
}
