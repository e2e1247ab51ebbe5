//! Handles of plans that are passed on instead of counted.
//!
//! Every Decision has a handle of its plan. All threads count the handles of one plan in one place, which then travels
//! between their cores twice for every check. So a Decision that ends leaves its handle to its thread, and the thread's
//! next Decision of that plan takes it over: nothing is counted.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use crate::plan::Plan;

/// Handles that a thread keeps at most: of the policies it is asked about in turn.
const SPARES: usize = 8;

thread_local! {
    static SPARE: [Cell<Option<Arc<Plan>>>; SPARES] = const { [const { Cell::new(None) }; SPARES] };
}

/// Plans lie about as far apart as they are large; their names' digests are spread evenly.
#[inline]
fn place(plan: &Plan) -> usize {
    plan.identity as usize % SPARES
}

/// Another handle of a plan.
#[inline]
pub(crate) fn handle(plan: &Arc<Plan>) -> Arc<Plan> {
    // A thread that is ending has no spares any more.
    let spare = SPARE.try_with(|spares| spares[place(plan)].take()).ok().flatten();
    spare.filter(|spare| Arc::ptr_eq(spare, plan)).unwrap_or_else(|| Arc::clone(plan))
}

/// A handle that is left to the thread it ends on.
pub(crate) struct Passed(Option<Arc<Plan>>);

impl Passed {
    #[inline]
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self(Some(plan))
    }
}

impl Clone for Passed {
    fn clone(&self) -> Self {
        Self::new(handle(self))
    }
}

impl Deref for Passed {
    type Target = Arc<Plan>;

    #[inline]
    fn deref(&self) -> &Arc<Plan> {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only its end takes the handle away"))
    }
}

impl Drop for Passed {
    #[inline]
    fn drop(&mut self) {
        if let Some(plan) = self.0.take() {
            let _ = SPARE.try_with(|spares| spares[place(&plan)].replace(Some(plan)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_handle_is_passed_on_within_its_thread_and_never_to_another_plan() {
        let plan = Policy::parse("5/minute").expect("a policy").plan();
        // The same name, so the same place, but another plan.
        let other = Policy::parse("5/minute").expect("a policy").plan();
        let before = Arc::strong_count(&plan);
        drop(Passed::new(handle(&plan)));
        assert_eq!(Arc::strong_count(&plan), before + 1, "the spare");
        let taken = Passed::new(handle(&plan));
        assert_eq!(Arc::strong_count(&plan), before + 1, "the spare, taken over");
        assert!(Arc::ptr_eq(&Passed::new(handle(&other)), &other));
        drop(taken);
        assert!(Arc::ptr_eq(&Passed::new(handle(&other)), &other));
        let kept = Arc::clone(&plan);
        std::thread::spawn(move || drop(Passed::new(handle(&kept)))).join().expect("a thread ends");
        assert_eq!(Arc::strong_count(&plan), before, "the spare went when the other plan's came, or with its thread");
    }
}
