//! `gcra`: admits when max(TAT, t) + c·p/n - t is at most burst·p/n.
//!
//! The theoretical arrival time is the moment the meter is empty, so the condition says: the units in the meter and
//! the cost together are at most the burst.

use super::meter::Meter;

pub(crate) type Rule = Meter;
