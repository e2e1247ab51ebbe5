//! The layers around a store that others share, on real servers that are killed, frozen and started again.

mod breaker;
mod deny_cache;
mod fallback;
mod rollout;
mod shards;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::{Builder, Limiter, ManualClock, StoreChange};
use tidegate_tests::lateness::stretched;
use tidegate_tests::servers::Servers;

/// Long enough for a server that answers on a busy machine, short enough for one that does not.
const TIMEOUT: Duration = Duration::from_millis(150);

fn timeout() -> Duration {
    stretched(TIMEOUT)
}

fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(timeout())
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)))
}

/// How often the server ran a script.
fn scripts(server: &Servers) -> u64 {
    let stats = server.command(0, &["INFO", "commandstats"]);
    let stats = stats.as_str().expect("text").to_owned();
    let calls = |command: &str| -> u64 {
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next());
        line.map_or(0, |number| number.parse().expect("a number"))
    };
    calls("evalsha") + calls("eval")
}

/// Everything that was told about a store.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<StoreChange>>>);

impl Told {
    fn listen(&self, builder: Builder) -> Builder {
        let told = Arc::clone(&self.0);
        builder.on_change(Arc::new(move |change| told.lock().expect("no panic").push(change.clone())))
    }

    fn all(&self) -> Vec<StoreChange> {
        self.0.lock().expect("no panic").clone()
    }

    fn words(&self) -> Vec<&'static str> {
        self.all().iter().map(|change| change.state.name()).collect()
    }
}

/// Waits for what comes soon; so long only where something is broken.
#[track_caller]
fn soon(what: &str, mut is: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what} in ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}
