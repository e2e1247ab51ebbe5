//! Plans for a calendar that differs from the time of the file, after the clock of the machine was set.

use std::sync::Arc;

use crate::plan::Plan;
use crate::process::lock::InheritedMutex;

/// The most plans that are kept.
const MAX_PLANS: usize = 64;

/// A plan, how far the calendar is ahead, and the plan for that.
type KeptPlan = (Arc<Plan>, i64, Arc<Plan>);

#[derive(Default)]
pub(super) struct CalendarPlans(InheritedMutex<Vec<KeptPlan>>);

impl CalendarPlans {
    pub(super) fn plan(&self, plan: &Arc<Plan>, ahead: i64) -> Arc<Plan> {
        let mut kept = self.0.lock();
        if let Some((.., known)) = kept.iter().find(|(of, by, _)| *by == ahead && Arc::ptr_eq(of, plan)) {
            return Arc::clone(known);
        }
        let made = plan.with_calendar_ahead(ahead).map_or_else(|| Arc::clone(plan), Arc::new);
        kept.retain(|(_, by, _)| *by == ahead);
        if kept.len() >= MAX_PLANS {
            kept.clear();
        }
        kept.push((Arc::clone(plan), ahead, Arc::clone(&made)));
        made
    }
}
