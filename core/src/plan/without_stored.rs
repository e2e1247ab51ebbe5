//! The stored form in a crate without the feature `stored`, where no server keeps usage.

use super::LimitTag;
use crate::algorithm::Rule;
use crate::policy::Policy;

/// Stands for the formats of a policy, because no server keeps its usage.
#[derive(Debug)]
pub(crate) struct StoredForm {
    pub(super) heap_bytes: usize,
}

impl StoredForm {
    pub(super) fn new(_: &Policy, _: &[Rule], _: &[LimitTag]) -> Self {
        Self { heap_bytes: 0 }
    }
}
