//! The event loop reads itself what servers say, where it can.

pub(crate) use looks::Watching;

#[cfg(target_os = "linux")]
mod looks {
    use std::cell::RefCell;
    use std::os::fd::{AsFd, AsRawFd};
    use std::rc::Rc;

    use napi::Env;
    use napi::bindgen_prelude::FunctionRef;
    use tidegate::AsyncLimiter;

    use crate::exchange::Exchange;
    use crate::uv::{Poll, call_back};

    /// While it lives, the loop reads.
    pub(crate) struct Watching {
        _poll: Poll,
    }

    impl Watching {
        /// `bell` is called with how many numbers there are in the exchange's `answers`.
        pub(crate) fn start(
            limiter: &AsyncLimiter,
            exchange: &Rc<RefCell<Exchange>>,
            env: &Env,
            bell: FunctionRef<i32, ()>,
        ) -> Option<Self> {
            let watch = limiter.watch()?;
            let exchange = Rc::downgrade(exchange);
            let file = watch.as_fd().as_raw_fd();
            let poll = Poll::start(env, file, move |env| {
                let Some(exchange) = exchange.upgrade() else { return };
                exchange.borrow().letters.looks();
                // What is asked in the callback leaves with those who wait already.
                let _row = watch.look();
                let numbers = exchange.borrow_mut().collect();
                if numbers != 0 {
                    // It fails where JavaScript can no longer run.
                    let _ = call_back(env, &bell, numbers);
                }
            })?;
            Some(Self { _poll: poll })
        }
    }
}

/// Elsewhere threads read.
#[cfg(not(target_os = "linux"))]
mod looks {
    use std::cell::RefCell;
    use std::rc::Rc;

    use napi::Env;
    use napi::bindgen_prelude::FunctionRef;
    use tidegate::AsyncLimiter;

    use crate::exchange::Exchange;

    pub(crate) enum Watching {}

    impl Watching {
        pub(crate) fn start(
            _: &AsyncLimiter,
            _: &Rc<RefCell<Exchange>>,
            _: &Env,
            _: FunctionRef<i32, ()>,
        ) -> Option<Self> {
            None
        }
    }
}
