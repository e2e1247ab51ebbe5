//! Units that a process takes in advance and spends within a `life`. A unit counts until the last moment at which it could be
//! spent has left the window; docs/adr/0022 says why that is so for each algorithm.
//!
//! | algorithm | a lease is charged | and can be spent until |
//! |---|---|---|
//! | windows of a clock, `sliding-counter` | as a check | the window ends |
//! | `sliding-window` | as a check | the granule ends |
//! | `sliding-log` | as of the end of its life | the end of its life |
//! | `token-bucket`, `gcra` | above a level that takes its life to drain | the end of its life |

/// What a lease asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    pub(crate) units: u64,
    /// For how many microseconds after the charge units may be spent, at most.
    pub(crate) life: u64,
}

/// A lease takes at most this part of what is left, so that the last units are found by the calls that need them.
pub(crate) const LEASED_PART: u64 = 4;

#[cfg(test)]
mod tests {
    use crate::algorithm::calendar_window::Grid;
    use crate::algorithm::{Rule, View};

    #[test]
    fn units_of_windows_end_with_them_and_others_with_their_life() {
        let view = View { resets_at: 17, ..View::default() };
        let hours = Grid::Uniform { length: 3_600, shift: 0 };
        for (rule, ends) in [
            (Rule::fixed_window(5, 10), Some(17)),
            (Rule::calendar_window(5, hours), Some(10_800)),
            (Rule::sliding_window(5, 1_000, 10), Some(7_400)),
            (Rule::sliding_counter(5, 1_000), Some(8_000)),
            (Rule::sliding_log(5, 1_000), None),
            (Rule::gcra(5, 1_000, 5), None),
        ] {
            assert_eq!(rule.lease_ends(&view, 7_345), ends, "{rule:?}");
        }
    }
}
