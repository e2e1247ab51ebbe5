//! Lets the event loop read the limiter's sockets, if it can.

pub(crate) use platform::LoopReader;

#[cfg(target_os = "linux")]
mod platform {
    use std::cell::RefCell;
    use std::os::fd::{AsFd, AsRawFd};
    use std::rc::Rc;

    use napi::Env;
    use napi::bindgen_prelude::FunctionRef;

    use crate::batch_codec::BatchCodec;
    use crate::uv::{UvPoll, call_back};

    /// The event loop reads as long as this lives.
    pub(crate) struct LoopReader {
        _poll: UvPoll,
    }

    impl LoopReader {
        /// `on_answers` gets the number of numbers in the codec's `answers`. Returns `None` if the loop cannot read.
        pub(crate) fn start(
            codec: &Rc<RefCell<BatchCodec>>,
            env: &Env,
            on_answers: FunctionRef<i32, ()>,
        ) -> Option<Self> {
            let poller = codec.borrow().limiter.reply_poller()?;
            let file = poller.as_fd().as_raw_fd();
            // Weak, so that the event loop does not keep the codec alive.
            let codec = Rc::downgrade(codec);
            let poll = UvPoll::start(env, file, move |env| {
                let Some(codec) = codec.upgrade() else { return };
                codec.borrow().completions.expect_collect();
                // Calls that are queued already are sent when this callback ends, together with those that it makes.
                let _batch = poller.poll_replies();
                let numbers = codec.borrow_mut().collect();
                if numbers != 0 {
                    // The call fails when JavaScript can no longer run. Then there is no caller left.
                    let _ = call_back(env, &on_answers, numbers);
                }
            })?;
            Some(Self { _poll: poll })
        }
    }
}

/// On other systems the limiter's threads read.
#[cfg(not(target_os = "linux"))]
mod platform {
    use std::cell::RefCell;
    use std::rc::Rc;

    use napi::Env;
    use napi::bindgen_prelude::FunctionRef;

    use crate::batch_codec::BatchCodec;

    pub(crate) enum LoopReader {}

    impl LoopReader {
        pub(crate) fn start(_: &Rc<RefCell<BatchCodec>>, _: &Env, _: FunctionRef<i32, ()>) -> Option<Self> {
            None
        }
    }
}
