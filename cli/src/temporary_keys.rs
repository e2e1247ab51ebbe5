//! Keys that a verb writes for a measurement. They are removed when the verb ends, even if it fails or is ended by
//! SIGINT or SIGTERM.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, Once, PoisonError, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::{Builder, Limiter};
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

use crate::Result;

/// The signal that ends the command: 0 for none.
static SIGNAL: AtomicU8 = AtomicU8::new(0);
/// The functions that end the work under way.
static CLOSES: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());
static LISTENS: Once = Once::new();

const SIGINT: u8 = 2;
#[cfg(unix)]
const SIGTERM: u8 = 15;

/// Removes the keys of a measurement when it is dropped.
pub(crate) struct TemporaryKeys {
    /// A signal does not close it, so it can remove the keys of the other limiters.
    cleaner: Limiter,
    is_removed: bool,
}

impl TemporaryKeys {
    /// The keys that `limiter` writes. `builder` builds another limiter with the same prefix to remove them. Fails if
    /// the store cannot be reached.
    pub(crate) fn of(builder: Builder, limiter: &Limiter) -> Result<Self> {
        let keys = Self { cleaner: builder.build()?, is_removed: false };
        LISTENS.call_once(|| {
            let (ready, listens) = mpsc::channel();
            drop(std::thread::Builder::new().name("signals".to_owned()).spawn(|| listen(ready)));
            // Writes nothing before the thread can hear a signal. If there is no thread, the channel is closed.
            let _ = listens.recv();
        });
        let writer = limiter.clone();
        keys.ended_by(move || writer.close());
        limiter.ping()?;
        Ok(keys)
    }

    /// Registers a function that a signal calls to end the writing of keys, so that the verb ends.
    pub(crate) fn ended_by(&self, close: impl Fn() + Send + 'static) {
        CLOSES.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(close));
    }

    /// Removes the keys, which nothing writes any more.
    pub(crate) fn remove(mut self) -> Result<()> {
        self.is_removed = true;
        self.cleaner.clear_all()
    }
}

impl Drop for TemporaryKeys {
    fn drop(&mut self) {
        if !self.is_removed {
            // The verb already returns its own failure.
            let _ = self.cleaner.clear_all();
        }
    }
}

/// A prefix that no other command and no service has.
pub(crate) fn temporary_prefix(verb: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("tidegate-{verb}-{:x}-{:x}:", std::process::id(), now.as_nanos())
}

/// The exit code of a command that a signal has ended, as shells have it.
pub(crate) fn exit_code() -> Option<u8> {
    Some(SIGNAL.load(Ordering::SeqCst)).filter(|signal| *signal > 0).map(|signal| 128 + signal)
}

/// Waits for signals, and drops `ready` once it can hear them. The first signal ends the work, and the verb removes its
/// keys. The second one ends the process.
fn listen(ready: mpsc::Sender<()>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let _: Option<()> = runtime.block_on(async {
        #[cfg(unix)]
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt()).ok()?, signal(SignalKind::terminate()).ok()?);
        #[cfg(windows)]
        let mut interrupt = tokio::signal::windows::ctrl_c().ok()?;
        drop(ready);
        loop {
            #[cfg(unix)]
            let number = tokio::select! {
                _ = interrupt.recv() => SIGINT,
                _ = terminate.recv() => SIGTERM,
            };
            #[cfg(windows)]
            let number = interrupt.recv().await.map(|()| SIGINT)?;
            if SIGNAL.swap(number, Ordering::SeqCst) > 0 {
                std::process::exit(i32::from(128 + number));
            }
            CLOSES.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|close| close());
        }
    });
}
