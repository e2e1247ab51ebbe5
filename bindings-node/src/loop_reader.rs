//! The event loop reads itself what servers say, where it can.

pub(crate) use platform::LoopReader;

#[cfg(target_os = "linux")]
mod platform {
    use std::cell::RefCell;
    use std::os::fd::{AsFd, AsRawFd};
    use std::rc::Rc;

    use napi::Env;
    use napi::bindgen_prelude::FunctionRef;
    use tidegate::AsyncLimiter;
    use tidegate::host::HostAsyncLimiter;

    use crate::batch_codec::BatchCodec;
    use crate::uv::{Poll, call_back};

    /// While it lives, the loop reads.
    pub(crate) struct LoopReader {
        _poll: Poll,
    }

    impl LoopReader {
        /// `wake_callback` is called with how many numbers there are in the codec's `answers`.
        pub(crate) fn start(
            limiter: &AsyncLimiter,
            codec: &Rc<RefCell<BatchCodec>>,
            env: &Env,
            wake_callback: FunctionRef<i32, ()>,
        ) -> Option<Self> {
            let watch = limiter.reply_poller()?;
            let codec = Rc::downgrade(codec);
            let file = watch.as_fd().as_raw_fd();
            let poll = Poll::start(env, file, move |env| {
                let Some(codec) = codec.upgrade() else { return };
                codec.borrow().completions.expect_collect();
                // What is asked in the callback leaves with those who wait already.
                let _batch = watch.poll_replies();
                let numbers = codec.borrow_mut().collect();
                if numbers != 0 {
                    // It fails where JavaScript can no longer run.
                    let _ = call_back(env, &wake_callback, numbers);
                }
            })?;
            Some(Self { _poll: poll })
        }
    }
}

/// Elsewhere threads read.
#[cfg(not(target_os = "linux"))]
mod platform {
    use std::cell::RefCell;
    use std::rc::Rc;

    use napi::Env;
    use napi::bindgen_prelude::FunctionRef;
    use tidegate::AsyncLimiter;

    use crate::batch_codec::BatchCodec;

    pub(crate) enum LoopReader {}

    impl LoopReader {
        pub(crate) fn start(
            _: &AsyncLimiter,
            _: &Rc<RefCell<BatchCodec>>,
            _: &Env,
            _: FunctionRef<i32, ()>,
        ) -> Option<Self> {
            None
        }
    }
}
