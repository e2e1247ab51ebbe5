//! How servers keep the usage of a policy, in a crate without the feature `redis`: they keep none.

use super::LimitTag;
use crate::algorithm::Rule;
use crate::policy::Policy;

/// Stands for the formats of a policy where no server keeps its usage.
#[derive(Debug)]
pub(crate) struct StoredForm {
    pub(super) heap_bytes: usize,
}

impl StoredForm {
    pub(super) fn new(_: &Policy, _: &[Rule], _: &[LimitTag]) -> Self {
        Self { heap_bytes: 0 }
    }
}
