//! A value that another module derives from a policy and keeps with it.

use std::any::Any;
use std::sync::Arc;

use once_cell::sync::OnceCell;

/// Holds one value of a type that this module does not know: what is derived from a policy depends on policies, so a
/// policy must not depend on it. Clones share the value.
#[derive(Debug, Clone, Default)]
pub(super) struct Derived(OnceCell<Arc<dyn Any + Send + Sync>>);

impl Derived {
    /// The value, made by the first call. All calls for one policy ask for the same type.
    #[inline]
    pub(super) fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.0.get_or_init(|| Arc::new(make()));
        value.downcast_ref().unwrap_or_else(|| unreachable!("one type is derived from policies"))
    }
}
