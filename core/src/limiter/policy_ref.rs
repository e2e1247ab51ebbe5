//! The ways to name the policy of a call.

use crate::policy::Policy;

/// The policy of a call: the name of one, a notation written in place, or a [`Policy`].
pub trait AsPolicy {
    /// The policy as one of these.
    fn as_policy(&self) -> PolicyRef<'_>;
}

/// A policy as a call names it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PolicyRef<'a> {
    /// A name or a notation.
    Text(&'a str),
    /// The policy itself.
    Policy(&'a Policy),
}

impl AsPolicy for PolicyRef<'_> {
    fn as_policy(&self) -> PolicyRef<'_> {
        *self
    }
}

impl AsPolicy for str {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Text(self)
    }
}

impl AsPolicy for String {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Text(self)
    }
}

impl AsPolicy for Policy {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Policy(self)
    }
}

impl<T: AsPolicy + ?Sized> AsPolicy for &T {
    fn as_policy(&self) -> PolicyRef<'_> {
        T::as_policy(self)
    }
}
