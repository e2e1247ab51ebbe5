//! The Python module of Tidegate: the core's nouns for Python. It only converts arguments and results.

// Only the names of the Python module are public.
#![allow(missing_docs, reason = "every Python name has a docstring, written for help()")]

mod admission;
mod attempt;
mod call_coroutine;
mod clock;
mod command;
mod convert;
mod costs;
mod decision;
mod error;
mod fork;
mod hold;
mod http;
mod key_override;
mod limit;
mod limit_state;
mod limiter;
mod lint;
mod llm;
mod log;
mod loop_completions;
mod loop_reader;
mod loop_waker;
mod near_limit;
mod observation;
mod options;
mod outgoing_call;
mod own_store;
mod policy;
mod policy_argument;
mod policy_use;
mod prepared_check;
mod prepared_policy;
mod python_call;
#[cfg(target_os = "linux")]
mod reader_choice;
mod rollout;
mod stats;
mod store_change;
mod sync;
mod teller;
mod verify_store;
mod wake_flag;
mod warning;

/// The compiled part of the package `tidegate`; import its names from there.
///
/// It needs no global interpreter lock: its classes are frozen, and a Rust lock never spans a call of Python.
#[pyo3::pymodule(gil_used = false)]
mod _tidegate {
    #[pymodule_export]
    use crate::admission::Admission;
    #[pymodule_export]
    use crate::attempt::Attempt;
    #[pymodule_export]
    use crate::call_coroutine::CallCoroutine;
    #[pymodule_export]
    use crate::clock::ManualClock;
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::costs::{costs_of_entries, shared_cost};
    #[pymodule_export]
    use crate::decision::{Decision, restore_decision};
    #[pymodule_export]
    use crate::fork::after_fork_in_child;
    #[pymodule_export]
    use crate::hold::{AsyncHold, Hold};
    #[pymodule_export]
    use crate::http::{
        ClientIp, Headers, anonymous, hashed, named, placed_key, problem, problem_without_store, status,
    };
    #[pymodule_export]
    use crate::key_override::Override;
    #[pymodule_export]
    use crate::limit::Limit;
    #[pymodule_export]
    use crate::limit_state::LimitState;
    #[pymodule_export]
    use crate::limiter::{AsyncLimiter, Limiter};
    #[pymodule_export]
    use crate::lint::lint;
    #[pymodule_export]
    use crate::llm::{TokenEstimate, TokenEstimator, UsageReader};
    #[pymodule_export]
    use crate::near_limit::NearLimit;
    #[pymodule_export]
    use crate::observation::{Observation, read_response};
    #[pymodule_export]
    use crate::outgoing_call::OutgoingCall;
    #[pymodule_export]
    use crate::policy::{Policy, nearest};
    #[pymodule_export]
    use crate::policy_use::PolicyUse;
    #[pymodule_export]
    use crate::prepared_check::PreparedCheck;
    #[pymodule_export]
    use crate::prepared_policy::PreparedPolicy;
    #[pymodule_export]
    use crate::python_call::before_exit;
    #[pymodule_export]
    use crate::rollout::{Rollout, rollout};
    #[pymodule_export]
    use crate::stats::metrics;
    #[pymodule_export]
    use crate::store_change::StoreChange;
    #[pymodule_export]
    use crate::verify_store::verify_store;
    #[pymodule_export]
    use crate::warning::Warning;

    #[expect(non_upper_case_globals, reason = "the name that Python uses")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
