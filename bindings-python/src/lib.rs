//! The Python module of Tidegate: Python's nouns over the core's. Conversion only; what a limit means is the core's.

// What Python sees is documented for Python; the rest is private.
#![allow(missing_docs, reason = "docstrings are written for help(), one per Python name")]

mod asynchronous;
mod attempt;
mod clock;
mod convert;
mod counters;
mod decision;
mod desk;
mod error;
mod fork;
mod hold;
mod http;
mod inbox;
mod limit;
mod limiter;
mod log;
mod options;
mod pending;
mod policy;
mod reading;
mod rollout;
mod waker;
mod warning;

/// The compiled part of the package `tidegate`; import its names from there.
#[pyo3::pymodule]
mod _tidegate {
    #[pymodule_export]
    use crate::asynchronous::AsyncLimiter;
    #[pymodule_export]
    use crate::attempt::Attempt;
    #[pymodule_export]
    use crate::clock::ManualClock;
    #[pymodule_export]
    use crate::decision::{Decision, LimitState, again};
    #[pymodule_export]
    use crate::desk::Desk;
    #[pymodule_export]
    use crate::fork::after_fork_in_child;
    #[pymodule_export]
    use crate::hold::{AsyncHold, Hold};
    #[pymodule_export]
    use crate::http::{ClientIp, Headers, anonymous, hashed, problem, status};
    #[pymodule_export]
    use crate::limit::Limit;
    #[pymodule_export]
    use crate::limiter::Limiter;
    #[pymodule_export]
    use crate::pending::Pending;
    #[pymodule_export]
    use crate::policy::Policy;
    #[pymodule_export]
    use crate::rollout::{Rollout, rollout};
    #[pymodule_export]
    use crate::warning::{Warning, lint};

    #[expect(non_upper_case_globals, reason = "the name Python looks for")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
