//! Damaged files: every call ends, and every loss is reported.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::{Limiter, OnStoreError};
use tidegate_tests::random::Random;
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::{SharedFile, examined_keys};

/// Damaged copies in a normal run. `TIDEGATE_DAMAGES` sets another number.
const COPIES: u64 = 300;
const KEYS: usize = 300;
const POLICY: &str = "fixed-window 5/hour; sliding-log 9/hour";
const HEADER: usize = 4096;
/// The used numbers of a header, and those at the beginning of the only shard of a small file.
const HEADER_NUMBERS: usize = 34;
const SHARD_NUMBERS: usize = 4;
/// The longest that all calls about one copy take together: none of them waits for a lock that no process holds.
const LONGEST: Duration = Duration::from_secs(60);

/// The warnings of limiters.
type Said = Arc<Mutex<Vec<String>>>;

fn open(url: &str, said: &Said) -> tidegate::Result<Limiter> {
    let said = Arc::clone(said);
    let heard = move |sentence: &str| said.lock().expect("no panic").push(sentence.to_owned());
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(5)).on_store_error(OnStoreError::Raise);
    builder.on_warning(Arc::new(heard)).build()
}

fn key(number: usize) -> String {
    format!("key {number}")
}

/// The used units of a key, which may be all of them.
fn used(number: usize) -> u64 {
    1 + number as u64 % 5
}

/// A file with some usage of every key.
fn filled() -> (SharedFile, String, Vec<u8>) {
    let shared = SharedFile::new();
    let url = shared.url("max_bytes=200kB");
    let limiter = open(&url, &Said::default()).expect("a limiter");
    for number in 0..KEYS {
        let decision = limiter.check_n(POLICY, &key(number), used(number)).expect("a decision");
        assert!(decision.allowed());
    }
    let bytes = fs::read(shared.path()).expect("bytes");
    (shared, url, bytes)
}

/// Changes a few bytes, or a whole page. The small parts that matter to all keys are hit as often as the rest.
fn damage(bytes: &mut [u8], random: &mut Random) {
    if random.one_in(10) {
        let page = random.below((bytes.len() / HEADER) as u64) as usize * HEADER;
        bytes[page..page + HEADER].fill(0);
        return;
    }
    for _ in 0..=random.below(3) * random.below(10) {
        let at = match random.below(4) {
            0 => random.below(8 * HEADER_NUMBERS as u64) as usize,
            1 => HEADER + random.below(8 * SHARD_NUMBERS as u64) as usize,
            _ => random.below(bytes.len() as u64) as usize,
        };
        let change = if random.one_in(2) { 1 << random.below(8) } else { 1 + random.below(255) };
        bytes[at] ^= change as u8;
    }
}

#[test]
fn every_call_ends_and_every_loss_is_said() {
    let (shared, url, whole) = filled();
    let mut random = Random::new(23);
    let (mut refused, mut lost, mut harmless) = (0, 0, 0);
    for copy in 0..setting("TIDEGATE_DAMAGES").unwrap_or(COPIES) {
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut random);
        fs::write(shared.path(), &bytes).expect("written");
        let (began, said) = (Instant::now(), Said::default());
        let limiter = match open(&url, &said) {
            Ok(limiter) => limiter,
            Err(error) => {
                assert_eq!(error.code(), "store_rejected", "copy {copy}: {error}");
                let text = error.to_string();
                assert!(text.contains(&*shared.path().to_string_lossy()) && text.contains("remove it"), "{text}");
                refused += 1;
                continue;
            }
        };
        let (mut errors, mut gone) = (0, Vec::new());
        for number in 0..KEYS {
            match limiter.check_n(POLICY, &key(number), 1) {
                Ok(decision) => {
                    let left = 5 - used(number);
                    let is_counted = if left == 0 { !decision.allowed() } else { decision.remaining() < left };
                    if !is_counted {
                        gone.push(number);
                    }
                }
                Err(error) => {
                    assert_eq!(error.code(), "store_rejected", "copy {copy}: {error}");
                    errors += 1;
                }
            }
        }
        assert!(began.elapsed() < LONGEST, "copy {copy} took {:?}", began.elapsed());
        let said = said.lock().expect("no panic");
        let is_named = |sentence: &String| sentence.contains(&*shared.path().to_string_lossy());
        assert!(said.iter().all(is_named), "{said:?}");
        let is_loss = |sentence: &String| sentence.contains("keys were lost");
        assert!(gone.is_empty() || said.iter().any(is_loss), "copy {copy}: {gone:?} are lost, and {said:?} was said");
        assert!(errors == 0 || said.iter().any(is_loss), "copy {copy}: {errors} errors, and {said:?} was said");
        // The first look at the whole file finds the damage that no call has met, and repairs it.
        let examined = || examined_keys(&url, Duration::from_secs(5));
        examined().or_else(|_| examined()).expect("it is whole");
        lost += usize::from(!gone.is_empty() || errors > 0);
        harmless += usize::from(gone.is_empty() && errors == 0);
    }
    println!("{refused} copies were refused, {lost} had lost something, {harmless} had not");
    assert!(refused > 0 && lost > 0 && harmless > 0);
}

/// Each damaged bit of the header is either restored, with a warning, or makes the file unusable, with an error.
#[test]
fn damage_of_the_header_loses_nothing_in_silence() {
    let (shared, url, whole) = filled();
    let (mut refused, mut restored) = (0, 0);
    for at in 0..HEADER_NUMBERS {
        if (12..16).contains(&at) || (20..32).contains(&at) {
            continue;
        }
        for bit in (0..64).step_by(7) {
            let mut bytes = whole.clone();
            bytes[8 * at + bit / 8] ^= 1 << (bit % 8);
            fs::write(shared.path(), &bytes).expect("written");
            let said = Said::default();
            match open(&url, &said) {
                Ok(limiter) => {
                    for number in 4..8 {
                        let decision = limiter.peek(POLICY, &key(number), 1).expect("a decision");
                        assert_eq!(decision.remaining(), 5 - used(number), "number {at}, bit {bit}");
                    }
                    let said = said.lock().expect("no panic");
                    assert!(
                        said.len() == 1 && said[0].contains("no usage is lost"),
                        "number {at}, bit {bit}: {said:?}"
                    );
                    restored += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), "store_rejected", "number {at}, bit {bit}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 20 && restored > 20, "{refused} refused, {restored} restored");
}

#[test]
fn a_damaged_lock_is_free_again_and_blames_no_process() {
    let (shared, url, whole) = filled();
    let mut random = Random::new(24);
    for _ in 0..40 {
        let mut bytes = whole.clone();
        bytes[HEADER + random.below(8) as usize] = 1 + random.below(255) as u8;
        fs::write(shared.path(), &bytes).expect("written");
        let said = Said::default();
        let limiter = open(&url, &said).expect("a limiter");
        let decision = limiter.check_n(POLICY, &key(0), 1).expect("no process holds it");
        assert_eq!(decision.remaining(), 3);
        let said = said.lock().expect("no panic");
        assert!(said.len() == 1 && said[0].contains("a lock was damaged"), "{said:?}");
    }
}
