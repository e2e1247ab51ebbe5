//! What other modules derive from a policy and keep with it.

use std::any::Any;
use std::sync::Arc;

use once_cell::race::OnceBox;

/// A value of a type that this module does not know.
pub(crate) type DerivedValue = Arc<dyn Any + Send + Sync>;

/// Holds one value of a type that this module does not know: what is derived from a policy depends on policies, so a
/// policy must not depend on it. Clones share the value.
///
/// No lock is behind it: a child would wait for a thread of its parent that was deriving the value.
#[derive(Debug, Clone, Default)]
pub(super) struct Derived(OnceBox<DerivedValue>);

/// What `http` writes of a policy, once.
#[derive(Debug)]
pub(crate) struct FieldTexts {
    /// The name as an item of the fields, without its quotes.
    pub(crate) name: Box<str>,
    /// The items of all its limits.
    pub(crate) items: Box<str>,
}

impl Derived {
    /// The value, made by the first call.
    #[inline]
    pub(super) fn get_or_init(&self, make: impl FnOnce() -> DerivedValue) -> &DerivedValue {
        self.0.get_or_init(|| Box::new(make()))
    }
}
