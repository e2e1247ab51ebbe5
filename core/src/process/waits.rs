//! How the caller of a call waits for its answer.

/// The way to wait. A caller that goes on brings what `L` is: a task brings nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits<L = ()> {
    /// Not at all. If the answer is not known at once, nothing is done.
    Never,
    /// On its thread.
    Here,
    /// It goes on. An answer that needs no waiting is returned all the same.
    Later(L),
}

impl Waits {
    /// As a task.
    pub(crate) const TASK: Self = Self::Later(());
}

impl<L> Waits<L> {
    pub(crate) const fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }
}
