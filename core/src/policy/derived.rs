//! Values that other modules derive from a policy and keep with it.

use std::any::Any;
use std::sync::Arc;

use once_cell::race::OnceBox;

/// A value of a type that this module does not know.
pub(crate) type DerivedValue = Arc<dyn Any + Send + Sync>;

/// Holds one value of a type that this module does not know. The code that derives it depends on policies, so a policy
/// must not depend on that code. Clones share the value.
///
/// It has no lock. After a fork a child could wait for a thread of its parent that was deriving the value.
#[derive(Debug, Clone, Default)]
pub(super) struct Derived(OnceBox<DerivedValue>);

/// The texts that `http` writes about a policy, once.
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
