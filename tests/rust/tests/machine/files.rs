//! Files that are a store, files that are not, and the data that they keep.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::{Error, Limiter, OnStoreError, Source};
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::{SharedFile, examined_keys};

use super::seal::{Salt, digest};

/// Keys of a flood in a normal run. `TIDEGATE_FLOOD` sets another number.
const FLOOD: u64 = 200_000;

fn limiter(url: &str) -> Limiter {
    open(url).expect("a limiter")
}

fn refusal(url: &str) -> Error {
    open(url).expect_err("it is refused")
}

fn open(url: &str) -> tidegate::Result<Limiter> {
    Limiter::builder().store(url).timeout(Duration::from_secs(10)).on_store_error(OnStoreError::Raise).build()
}

#[test]
fn usage_outlives_every_limiter() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    for round in 0..3 {
        let (one, other) = (limiter(&url), limiter(&url));
        assert_eq!(one.check("6/hour", "k").expect("a decision").remaining(), 5 - 2 * round);
        assert_eq!(other.check("6/hour", "k").expect("a decision").remaining(), 4 - 2 * round);
    }
    assert!(!limiter(&url).check("6/hour", "k").expect("a decision").allowed());
    assert_eq!(examined_keys(&url, Duration::from_secs(5)), Ok(1));
}

/// The test writes into the file that the machine has restarted since it was used.
#[test]
fn usage_outlives_a_restart_of_the_machine() {
    /// The places of the seed, of both copies of the start, of the first moment that was not seen, of the lead of the
    /// calendar, and of the lock of the only shard.
    const SEED: u64 = 6;
    const STARTS: [u64; 2] = [8, 16];
    const UNSEEN: usize = 32;
    const AHEAD: usize = 33;
    const LOCK: u64 = 4096 / 8;
    const ZERO: i64 = (1 << 51) - 1;
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=200kB");
    assert!(limiter(&url).check("gcra 1/hour", "k").expect("a decision").allowed());
    let restart = |unseen: u64, ahead: i64| {
        let file = fs::OpenOptions::new().read(true).write(true).open(shared.path()).expect("the file");
        let write = |at: u64, number: u64| file.write_all_at(&number.to_ne_bytes(), 8 * at).expect("written");
        let mut seed = [0; 8];
        file.read_exact_at(&mut seed, 8 * SEED).expect("a number");
        // Time since the start begins at 0 again, and a process held a lock when the machine went down.
        let (boot, offset, base) = (1, 0, 1 << 40);
        let start = [boot, offset, base, digest(&[u64::from_ne_bytes(seed), boot, offset, base])];
        for (at, number) in STARTS.into_iter().flat_map(|at| (at..).zip(start)) {
            write(at, number);
        }
        write(UNSEEN as u64, Salt::at(UNSEEN).seal(unseen));
        write(AHEAD as u64, Salt::at(AHEAD).seal((ahead + ZERO).cast_unsigned()));
        write(LOCK, u64::from(std::process::id()) << 1 | 1);
        let decision = limiter(&url).check("gcra 1/hour", "k").expect("a decision");
        assert!(!decision.allowed());
        decision.retry_after().expect("it comes back").as_secs()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64;
    assert!((3_500..=3_600).contains(&restart(now, 0)), "the hour goes on");
    // The machine's clock had been set ahead by some minutes before the restart: the file stays as far behind it.
    assert!((4_100..=4_200).contains(&restart(0, 600_000_000)), "no time is counted that did not pass");
    // The clock was set back meanwhile.
    assert!((1_700..=1_800).contains(&restart(now + 1_800_000_000, 0)), "no time is counted twice");
    examined_keys(&url, Duration::from_secs(5)).expect("the file is whole");
}

#[test]
fn another_prefix_is_another_key_and_is_not_cleared() {
    let shared = SharedFile::new();
    let of = |prefix: &str| {
        Limiter::builder()
            .store(shared.url("max_bytes=1MB"))
            .timeout(Duration::from_secs(10))
            .prefix(prefix)
            .build()
            .expect("a limiter")
    };
    let (one, other) = (of("one"), of("other"));
    assert_eq!(one.check("5/hour", "k").expect("a decision").remaining(), 4);
    assert_eq!(other.check("5/hour", "k").expect("a decision").remaining(), 4);
    one.clear_all().expect("cleared");
    assert_eq!(one.check("5/hour", "k").expect("a decision").remaining(), 4);
    assert_eq!(other.check("5/hour", "k").expect("a decision").remaining(), 3);
}

#[test]
fn only_its_owner_may_use_it() {
    let shared = SharedFile::new();
    limiter(&shared.url("max_bytes=1MB"));
    let mode = |file| fs::metadata(file).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(shared.path()), 0o600);
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o666)).expect("rights");
    let error = refusal(&shared.url("max_bytes=1MB"));
    assert_eq!(error.code(), "config_invalid");
    assert!(error.to_string().contains("0666") && error.to_string().contains("?mode="), "{error}");
    limiter(&shared.url("max_bytes=1MB&mode=0666"));
}

#[test]
fn a_file_of_another_user_is_refused_unless_others_may_write_to_it() {
    let shared = SharedFile::new();
    limiter(&shared.url("max_bytes=1MB"));
    if std::os::unix::fs::chown(shared.path(), Some(12_345), None).is_err() {
        return println!("only root can give a file away");
    }
    let error = refusal(&shared.url("max_bytes=1MB"));
    assert_eq!(error.code(), "config_invalid", "{error}");
    assert!(error.to_string().contains("12345") && error.to_string().contains("?mode="), "{error}");
    assert_eq!(refusal(&shared.url("max_bytes=1MB&mode=0644")).code(), "config_invalid");
    limiter(&shared.url("max_bytes=1MB&mode=0660"));
}

/// The progress of another process that makes the file whole. It is not 0 while that process works.
const REPAIRED: u64 = 32 * 8;

#[test]
fn a_limiter_waits_for_a_process_that_makes_the_file_whole() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    limiter(&url).check("6/hour", "k").expect("a decision");
    let file = fs::OpenOptions::new().read(true).write(true).open(shared.path()).expect("the file");
    file.lock().expect("a lock");
    let progress = |number: u64| file.write_all_at(&number.to_ne_bytes(), REPAIRED).expect("written");
    progress(1);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| limiter(&url).check("6/hour", "k"));
        for number in 2..20 {
            std::thread::sleep(Duration::from_millis(100));
            progress(number);
        }
        assert!(!opening.is_finished());
        progress(0);
        file.unlock().expect("no lock");
        assert_eq!(opening.join().expect("a limiter").expect("a decision").remaining(), 4);
    });
}

#[test]
fn on_store_error_decides_while_another_process_does_not_finish_with_the_file() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    limiter(&url).check("6/hour", "k").expect("a decision");
    let file = fs::File::open(shared.path()).expect("the file");
    file.lock().expect("a lock");
    let builder = || Limiter::builder().store(&url).timeout(Duration::from_millis(100));
    let of = |choice| builder().on_store_error(choice).build().expect("a limiter");
    let limiters = [OnStoreError::Local, OnStoreError::Open, OnStoreError::Closed, OnStoreError::Raise].map(of);
    let [local, open, closed, raise] = &limiters;
    let source = |limiter: &Limiter| limiter.check("6/hour", "k").map(|decision| decision.source());
    assert_eq!(source(local).expect("a decision"), Source::Fallback);
    assert!(open.check("6/hour", "k").expect("a decision").allowed());
    assert!(closed.check("6/hour", "k").expect("a decision").unavailable());
    let all = |limiter: &Limiter| limiter.check_all([("6/hour", "k", 1), ("7/hour", "k", 1)]);
    assert!(closed.check_all([("6/hour", "k", 1)]).expect("a decision").unavailable());
    for error in [source(raise).err(), all(raise).err(), raise.ping().err(), raise.clear("6/hour", "k").err()] {
        let error = error.expect("it is raised");
        assert_eq!(error.code(), "store_timeout", "{error}");
        assert!(error.to_string().contains("is being opened by another process"), "{error}");
    }
    file.unlock().expect("no lock");
    for limiter in &limiters {
        let is_open = || source(limiter).is_ok_and(|source| source == Source::Store);
        tidegate_tests::wait::wait_until(Duration::from_secs(20), "the file is open", is_open);
        limiter.ping().expect("it is open");
    }
}

#[test]
fn what_is_no_file_of_a_store_is_refused() {
    let shared = SharedFile::new();
    let refused = |url: &str, code: &str, words: &str| {
        let error = refusal(url);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let url = shared.url("max_bytes=1MB");
    let elsewhere = SharedFile::new();
    limiter(&elsewhere.url("max_bytes=1MB"));
    symlink(elsewhere.path(), shared.path()).expect("a link");
    refused(&url, "config_invalid", "is a link");
    fs::remove_file(shared.path()).expect("removed");

    fs::create_dir(shared.path()).expect("a folder");
    assert_eq!(refusal(&url).code(), "config_invalid");
    fs::remove_dir(shared.path()).expect("removed");

    fs::write(shared.path(), vec![b'x'; 1 << 20]).expect("a file");
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o600)).expect("rights");
    refused(&url, "store_rejected", "is not a file of a store");
    fs::write(shared.path(), b"").expect("a file");
    refused(&url, "store_rejected", "is not a file of a store");
    fs::remove_file(shared.path()).expect("removed");

    refused(
        &format!("file://{}/none/limits", shared.path().display()),
        "config_invalid",
        "its folder does not exist: make it first, with mkdir -p /",
    );

    limiter(&url);
    let whole = fs::read(shared.path()).expect("bytes");
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        fs::write(shared.path(), bytes).expect("written");
    };
    changed(8, 4);
    refused(&url, "store_rejected", "layout 6");
    changed(24, 1);
    refused(&url, "store_rejected", "has a damaged header");
    fs::write(shared.path(), &whole[..whole.len() / 2]).expect("written");
    refused(&url, "store_rejected", "has a damaged header");
}

#[test]
fn a_flood_of_keys_stays_within_the_file_and_forgets_no_denial() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=1MB");
    let flooded = limiter(&url);
    let denied: Vec<String> = (0..20).map(|number| format!("denied {number}")).collect();
    for key in &denied {
        for allowed in [true, true, false] {
            assert_eq!(flooded.check("2/hour", key).expect("a decision").allowed(), allowed);
        }
    }
    let size = fs::metadata(shared.path()).expect("a file").len();
    for number in 0..setting("TIDEGATE_FLOOD").unwrap_or(FLOOD) {
        assert!(flooded.check("2/hour", &format!("flood {number}")).expect("a decision").allowed());
    }
    for key in &denied {
        assert!(!flooded.check("2/hour", key).expect("a decision").allowed(), "{key} was forgotten");
    }
    assert_eq!(fs::metadata(shared.path()).expect("a file").len(), size);
    let keys = examined_keys(&url, Duration::from_secs(5)).expect("a whole file");
    assert!(keys > 5_000, "{keys} keys");
}

#[test]
fn a_full_file_is_said_once_and_its_listener_may_make_calls() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=200kB");
    let (warnings, other) = (Arc::new(Mutex::new(Vec::new())), limiter(&url));
    let heard = Arc::clone(&warnings);
    let builder = Limiter::builder().store(&url).timeout(Duration::from_secs(10)).on_store_error(OnStoreError::Raise);
    let flooded = builder.on_warning(Arc::new(move |sentence: &str| {
        heard.lock().expect("no panic").push(sentence.to_owned());
        other.check("2/hour", "of the listener").expect("no lock is held");
    }));
    let flooded = flooded.build().expect("a limiter");
    for number in 0..10_000 {
        assert!(flooded.check("2/hour", &format!("key {number}")).expect("a decision").allowed());
    }
    let warnings = warnings.lock().expect("no panic");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("is full") && warnings[0].contains("max_bytes="), "{warnings:?}");
}

#[test]
fn a_forgotten_denial_of_a_file_is_said_with_what_helps() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=200kB");
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&warnings);
    let builder = Limiter::builder().store(&url).timeout(Duration::from_secs(5)).on_store_error(OnStoreError::Raise);
    let builder = builder.on_warning(Arc::new(move |said: &str| heard.lock().expect("no panic").push(said.to_owned())));
    let flooded = builder.build().expect("a limiter");
    for number in 0..10_000 {
        flooded.check("1/hour", &format!("key {number}")).expect("a decision");
    }
    let warnings = warnings.lock().expect("no panic");
    let [said] = &warnings[..] else { panic!("{warnings:?}") };
    let path = shared.path().display().to_string();
    assert!(said.contains("being denied") && said.contains(&path) && said.contains("?max_bytes="), "{said}");
    assert!(!said.contains("memory"), "{said}");
}

#[test]
fn the_number_of_keys_is_bounded_too() {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=2MB&max_keys=500");
    let limiter = limiter(&url);
    for number in 0..5_000 {
        assert!(limiter.check("2/hour", &format!("key {number}")).expect("a decision").allowed());
    }
    let keys = examined_keys(&url, Duration::from_secs(5)).expect("a whole file");
    assert!((400..=500).contains(&keys), "{keys} keys");
}
