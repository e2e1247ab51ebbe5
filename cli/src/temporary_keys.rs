//! Keys that a verb writes for a measurement. They are gone when the verb ends, however it ends: also when it fails, and by
//! SIGINT or SIGTERM.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use tidegate::{Builder, Limiter};

use crate::Failure;

/// The signal that ends the command: 0 for none.
static SIGNAL: AtomicU8 = AtomicU8::new(0);
/// What ends the work that is under way.
static CLOSES: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());
static LISTENS: Once = Once::new();

const SIGINT: u8 = 2;
#[cfg(unix)]
const SIGTERM: u8 = 15;

/// Removes the keys of a measurement when it is dropped.
pub(crate) struct TemporaryKeys {
    /// It is not closed by a signal, and so can remove what the others wrote.
    cleaner: Limiter,
    is_removed: bool,
}

impl TemporaryKeys {
    /// The keys under the prefix of a limiter that this builds, which the other limiter writes. Fails where that cannot reach
    /// its store.
    pub(crate) fn of(builder: Builder, limiter: &Limiter) -> Result<Self, Failure> {
        let keys = Self { cleaner: builder.build()?, is_removed: false };
        LISTENS.call_once(|| drop(std::thread::Builder::new().name("signals".to_owned()).spawn(listen)));
        let writer = limiter.clone();
        keys.ended_by(move || writer.close());
        limiter.ping()?;
        Ok(keys)
    }

    /// Has a signal end what writes the keys, so that the verb comes to its end.
    pub(crate) fn ended_by(&self, close: impl Fn() + Send + 'static) {
        CLOSES.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(close));
    }

    /// Removes the keys. Nothing writes them any more.
    pub(crate) fn remove(mut self) -> Result<(), Failure> {
        self.is_removed = true;
        Ok(self.cleaner.clear_all()?)
    }
}

impl Drop for TemporaryKeys {
    fn drop(&mut self) {
        if !self.is_removed {
            // Why the verb failed is told already.
            let _ = self.cleaner.clear_all();
        }
    }
}

/// The exit code of a command that a signal has ended, as shells have it.
pub(crate) fn exit_code() -> Option<u8> {
    Some(SIGNAL.load(Ordering::SeqCst)).filter(|signal| *signal > 0).map(|signal| 128 + signal)
}

/// Waits for signals. The first ends the work, and the verb removes its keys; the second ends the process.
fn listen() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        while let Some(signal) = next_signal().await {
            if SIGNAL.swap(signal, Ordering::SeqCst) > 0 {
                std::process::exit(i32::from(128 + signal));
            }
            CLOSES.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|close| close());
        }
    });
}

async fn next_signal() -> Option<u8> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).ok()?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.ok().map(|()| SIGINT),
            _ = terminate.recv() => Some(SIGTERM),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.ok().map(|()| SIGINT)
}
