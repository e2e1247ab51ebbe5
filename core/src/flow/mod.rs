//! The flow of a request, once for all hosts: see [ADR 0048](../../../docs/adr/0048-gather-ask-finish.md).

mod admission;

#[cfg(feature = "tower")]
pub(crate) use admission::give_back;
pub use admission::{Admission, AskedStep};
