//! Looks up the addresses of hosts.
//!
//! The system's resolver takes no deadline, so a lookup has a thread, which may run long after its callers have given
//! up. To keep hanging lookups few, each host has one at a time, which its callers share, and a process has a limit.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::process::lock::{Condvar, Mutex, MutexGuard};

use crate::process::fork::PerProcess;

/// The most lookups at a time. Callers for further hosts wait until one has ended.
const MAX_LOOKUPS: usize = 16;

/// The result of a lookup. Its callers share it, and an `io::Error` cannot be shared.
type Found = Result<Arc<[IpAddr]>, (io::ErrorKind, String)>;
/// A lookup that runs, and has a result when it has ended.
type NameLookup = Arc<OnceLock<Found>>;
type Resolver = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The lookups under way, one for each host.
struct NameLookups {
    running: Mutex<HashMap<Arc<str>, NameLookup>>,
    /// Wakes all callers whenever a lookup has ended.
    ended: Condvar,
    resolver: Box<Resolver>,
}

/// The lookups of this process. Each process has its own, because a forked child has no threads that end its parent's lookups.
static LOOKUPS: PerProcess<Arc<NameLookups>> = PerProcess::new();

/// The addresses of a host.
///
/// # Errors
/// `TimedOut` at the deadline. The lookup goes on then, and the next caller for this host waits for it.
pub(super) fn addresses_of(host: &Arc<str>, deadline: Instant) -> io::Result<Arc<[IpAddr]>> {
    LOOKUPS.with(|| NameLookups::new(Box::new(ask_system)), Arc::clone).find(host, deadline)
}

fn ask_system(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl NameLookups {
    fn new(resolver: Box<Resolver>) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), ended: Condvar::default(), resolver })
    }

    fn find(self: &Arc<Self>, host: &Arc<str>, deadline: Instant) -> io::Result<Arc<[IpAddr]>> {
        let mut running = self.running.lock();
        let lookup = loop {
            if let Some(lookup) = running.get(host) {
                break Arc::clone(lookup);
            }
            if running.len() < MAX_LOOKUPS {
                break self.start(&mut running, host)?;
            }
            running = self.wait(running, deadline)?;
        };
        loop {
            match lookup.get() {
                Some(Ok(addresses)) => return Ok(Arc::clone(addresses)),
                Some(Err((kind, message))) => return Err(io::Error::new(*kind, message.clone())),
                None => running = self.wait(running, deadline)?,
            }
        }
    }

    fn wait<'a, T>(&self, running: MutexGuard<'a, T>, deadline: Instant) -> io::Result<MutexGuard<'a, T>> {
        match self.ended.wait_until(running, deadline) {
            (_, true) => Err(io::ErrorKind::TimedOut.into()),
            (running, false) => Ok(running),
        }
    }

    fn start(self: &Arc<Self>, running: &mut HashMap<Arc<str>, NameLookup>, host: &Arc<str>) -> io::Result<NameLookup> {
        let lookup = NameLookup::default();
        let (lookups, host_of_thread) = (Arc::clone(self), Arc::clone(host));
        std::thread::Builder::new().name("tidegate-resolver".to_owned()).spawn(move || lookups.run(&host_of_thread))?;
        running.insert(Arc::clone(host), Arc::clone(&lookup));
        Ok(lookup)
    }

    /// Runs on the thread of the lookup.
    fn run(&self, host: &Arc<str>) {
        // A lookup that panics must end all the same.
        let found = catch_unwind(AssertUnwindSafe(|| (self.resolver)(host)))
            .unwrap_or_else(|_| Err(io::Error::other("its name cannot be looked up")))
            .map(Arc::from)
            .map_err(|error| (error.kind(), format!("its name is not known: {error}")));
        let mut running = self.running.lock();
        if let Some(lookup) = running.remove(host) {
            let _ = lookup.set(found);
        }
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// A resolver that answers only while its gate is open, and the hosts that it was asked for.
    struct Gate {
        open: Mutex<bool>,
        opened: Condvar,
        asked: Mutex<Vec<String>>,
        running: AtomicUsize,
        most: AtomicUsize,
    }

    impl Gate {
        fn closed() -> (Arc<Self>, Arc<NameLookups>) {
            let gate = Arc::new(Self {
                open: Mutex::new(false),
                opened: Condvar::default(),
                asked: Mutex::default(),
                running: AtomicUsize::new(0),
                most: AtomicUsize::new(0),
            });
            let resolver = Arc::clone(&gate);
            (gate, NameLookups::new(Box::new(move |host| resolver.resolve(host))))
        }

        fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.lock().push(host.to_owned());
            self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let mut open = self.open.lock();
            while !*open {
                open = self.opened.wait(open);
            }
            drop(open);
            self.running.fetch_sub(1, Ordering::SeqCst);
            match host {
                "nowhere" => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
                "broken" => panic!("a resolver that panics"),
                _ => Ok(vec![IpAddr::from([10, 0, 0, host.len() as u8])]),
            }
        }

        fn set(&self, open: bool) {
            *self.open.lock() = open;
            self.opened.notify_all();
        }

        fn asked(&self) -> usize {
            self.asked.lock().len()
        }
    }

    fn host(name: impl Into<String>) -> Arc<str> {
        name.into().into()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Makes these calls at the same time.
    fn at_once<T: Send>(calls: usize, call: impl Fn(usize) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let call = &call;
            let threads: Vec<_> = (0..calls).map(|number| scope.spawn(move || call(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn hanging_lookups_of_a_host_are_one_and_no_caller_is_late() {
        let (gate, lookups) = Gate::closed();
        for _ in 0..5 {
            let late = at_once(12, |number| {
                let deadline = soon();
                let error = lookups.find(&host(format!("sentinel{}", number % 3)), deadline).expect_err("it hangs");
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                deadline.elapsed()
            });
            // A busy machine wakes threads late. A caller that waits for the lookup would never be woken.
            assert!(late.iter().all(|late| *late < Duration::from_secs(10)), "{late:?}");
        }
        assert_eq!(gate.asked(), 3, "one for each host");
        // Callers wait for a lookup that hangs, and start no other one.
        let waiting = at_once(4, |number| {
            if number == 3 {
                gate.set(true);
            }
            lookups.find(&host("sentinel1"), later()).expect("an address")
        });
        assert!(waiting.iter().all(|addresses| **addresses == [IpAddr::from([10, 0, 0, 9])]));
        while !lookups.running.lock().is_empty() {
            std::thread::yield_now();
        }
        // A result is not kept: a name may move.
        let before = gate.asked();
        assert!(lookups.find(&host("sentinel1"), later()).is_ok());
        assert_eq!(gate.asked(), before + 1);
    }

    #[test]
    fn a_process_has_few_lookups_and_the_others_get_their_turn() {
        let (gate, lookups) = Gate::closed();
        let hosts = 5 * MAX_LOOKUPS;
        let name = |number: usize| host(format!("{number:03}"));
        let failed = at_once(hosts, |number| lookups.find(&name(number), soon()).map_err(|error| error.kind()));
        assert!(failed.iter().all(|failed| *failed == Err(io::ErrorKind::TimedOut)));
        assert_eq!(gate.asked(), MAX_LOOKUPS);
        let found = at_once(hosts + 1, |number| match number {
            0 => {
                gate.set(true);
                true
            }
            number => lookups.find(&name(number - 1), later()).is_ok(),
        });
        assert!(found.iter().all(|found| *found));
        assert!(gate.most.load(Ordering::SeqCst) <= MAX_LOOKUPS);
    }

    #[test]
    fn an_error_ends_a_lookup_and_the_next_caller_asks_again() {
        let (gate, lookups) = Gate::closed();
        gate.set(true);
        for (name, says) in [("nowhere", "no such host"), ("broken", "cannot be looked up")] {
            for _ in 0..2 {
                let error = lookups.find(&host(name), later()).expect_err(name);
                assert!(error.to_string().contains(says), "{error}");
            }
        }
        assert_eq!(gate.asked(), 4);
        assert!(lookups.running.lock().is_empty());
    }
}
