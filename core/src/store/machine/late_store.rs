//! A store for a file that another process is still opening. A thread opens it when that process is done. Until then
//! each call fails, so that `on_store_error` decides.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Machine;
use super::machine_store::MachineStore;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::OnStoreError;
use crate::process::fork;
use crate::process::log::Log;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry};

/// The pause between two attempts to open a file.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens the store of a file: now, or later if another process keeps it.
///
/// # Errors
/// Those of the file, except `store_timeout`.
pub(crate) fn open(
    open: impl Fn() -> Result<Machine> + Send + Sync + 'static,
    choice: OnStoreError,
    log: &Log,
) -> Result<Arc<dyn Store>> {
    match open() {
        Ok(machine) => Ok(Arc::new(MachineStore::new(machine))),
        Err(error) if error.kind() == ErrorKind::StoreTimeout => {
            log.warn(&format!("{error}. Until it is open, {}", choice.applied()));
            let (opened, error) = (ArcSwapOption::empty(), ArcSwap::from_pointee(error));
            let opening = Opening { open, opened, error, opener: AtomicU64::new(0), closed: AtomicBool::new(false) };
            Ok(Arc::new(LateStore(Arc::new(opening))))
        }
        Err(error) => Err(error),
    }
}

struct Opening<F> {
    open: F,
    opened: ArcSwapOption<MachineStore>,
    /// Why it is not open.
    error: ArcSwap<Error>,
    /// The process with the thread that tries to open it, as its number of forks plus 1. 0 if there is none.
    opener: AtomicU64,
    closed: AtomicBool,
}

impl<F: Fn() -> Result<Machine>> Opening<F> {
    /// Tries to open the file, until it is open or the store is closed or dropped.
    fn run(opening: &Weak<Self>) {
        while let Some(opening) = opening.upgrade().filter(|opening| !opening.closed.load(Ordering::Relaxed)) {
            match (opening.open)() {
                Ok(machine) => return opening.opened.store(Some(Arc::new(MachineStore::new(machine)))),
                Err(error) => opening.error.store(Arc::new(error)),
            }
            drop(opening);
            std::thread::sleep(PAUSE);
        }
    }
}

struct LateStore<F>(Arc<Opening<F>>);

impl<F: Fn() -> Result<Machine> + Send + Sync + 'static> LateStore<F> {
    fn opened(&self) -> Result<Arc<MachineStore>> {
        let opening = &self.0;
        if opening.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        if let Some(store) = opening.opened.load_full() {
            return Ok(store);
        }
        let own = fork::generation() + 1;
        if opening.opener.swap(own, Ordering::Relaxed) != own {
            let weak = Arc::downgrade(opening);
            let thread = std::thread::Builder::new().name("tidegate-open".to_owned());
            thread.spawn(move || Opening::run(&weak)).map_err(|error| {
                opening.opener.store(0, Ordering::Relaxed);
                Error::no_thread(&error)
            })?;
        }
        Err((**opening.error.load()).clone())
    }
}

impl<F: Fn() -> Result<Machine> + Send + Sync + 'static> Store for LateStore<F> {
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        match self.opened() {
            Ok(store) => store.begin(entry, context, states),
            Err(error) => Some(Err(error)),
        }
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        match self.opened() {
            Ok(store) => store.begin_all(entries, context, states),
            Err(error) => Some(Err(error)),
        }
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.opened()?.ping(deadline)
    }

    fn clear_all(&self) -> Result<()> {
        self.opened()?.clear_all()
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        self.opened()?.change_override(entry, now)
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        self.opened()?.overrides(entry, now)
    }

    fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        if let Some(store) = self.0.opened.load_full() {
            store.close();
        }
    }
}
