//! Plans as they count where the calendar is not what the file says: after the clock of the machine was set.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::plan::Plan;

/// The most plans that are kept.
const MAX_PLANS: usize = 64;

/// A plan, how far the calendar is ahead, and the plan for that.
type KeptPlan = (Arc<Plan>, i64, Arc<Plan>);

#[derive(Default)]
pub(super) struct CalendarPlans(Mutex<Vec<KeptPlan>>);

impl CalendarPlans {
    pub(super) fn plan(&self, plan: &Arc<Plan>, ahead: i64) -> Arc<Plan> {
        // Another thread may hold it, in the child of a fork for ever.
        let mut kept = self.0.try_lock();
        let known = kept.iter().flat_map(|kept| kept.iter());
        let known = known.filter(|(of, by, _)| *by == ahead && Arc::ptr_eq(of, plan)).map(|(.., found)| found).next();
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let made = plan.with_calendar_ahead(ahead).map_or_else(|| Arc::clone(plan), Arc::new);
        if let Some(kept) = &mut kept {
            kept.retain(|(_, by, _)| *by == ahead);
            if kept.len() >= MAX_PLANS {
                kept.clear();
            }
            kept.push((Arc::clone(plan), ahead, Arc::clone(&made)));
        }
        made
    }
}
