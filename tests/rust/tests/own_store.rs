//! Limiters on a store of the application.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use tidegate::host::{CallerQuestions, HostStore, Reply};
use tidegate::store::{
    CallerQueue, Change, KeyValueStore, StoreAnswer, StoreFailure, Swapped, Value, WaitingCaller, verify,
};
use tidegate::{ErrorKind, Limiter, OnStoreError};
use tidegate_tests::own_store::Table;
use tidegate_tests::vectors::{Case, Variant, cases, files};

#[test]
fn vectors_hold_on_a_store_of_the_application() {
    let cases: Vec<Case> = files().iter().flat_map(|file| cases(file)).collect();
    let variant = Variant { store: "own".to_owned(), is_async: true };
    let mismatches: Vec<String> = cases.iter().filter_map(|case| case.run(&variant).err()).collect();
    assert!(mismatches.is_empty(), "{} mismatches\n\n{}", mismatches.len(), mismatches.join("\n\n"));
}

#[tokio::test]
async fn the_test_kit_names_each_defect() {
    verify(&Table::default()).await.expect("a whole store");
    let table =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../stores/defects.json")).expect("a file");
    let defects: BTreeMap<String, String> = serde_json::from_str(&table).expect("a table");
    for (defect, sentence) in defects {
        let found = verify(&Table::with(&defect)).await.expect_err(&defect);
        assert!(found.message().contains(&sentence), "{defect}: {found}");
    }
}

/// A store whose methods fail.
struct Failing {
    /// True if a swap certainly did not happen.
    not_applied: bool,
}

impl KeyValueStore for Failing {
    async fn read(&self, keys: &[&[u8]], _: Duration) -> StoreAnswer<Option<Value>> {
        Ok((None, keys.iter().map(|_| None).collect()))
    }

    async fn compare_and_swap(&self, _: &[Change], _: Duration) -> StoreAnswer<Swapped> {
        let error = io::Error::other("the disk is full");
        Err(if self.not_applied { StoreFailure::NotApplied(error.into()) } else { StoreFailure::from(error) })
    }
}

#[test]
fn an_error_of_a_method_is_the_source_of_the_error() {
    for not_applied in [false, true] {
        let limiter = Limiter::builder().key_value_store(Failing { not_applied }).on_store_error(OnStoreError::Raise);
        let limiter = limiter.timeout(Duration::from_millis(200)).build().expect("a limiter");
        let error = limiter.check("5/hour", "a").expect_err("it fails");
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
        assert_eq!(error.did_not_run(), not_applied, "{error}");
        assert!(error.message().contains("Failing.compare_and_swap failed: the disk is full"), "{error}");
        assert!(error.source().is_some_and(|source| source.is::<io::Error>()));
    }
}

#[test]
fn threads_charge_exactly_the_limit() {
    let limiter = Limiter::builder().key_value_store(Table::default()).policy("api", "100/hour").expect("a policy");
    let limiter = limiter.timeout(Duration::from_secs(30)).build().expect("a limiter");
    let admitted: usize = std::thread::scope(|scope| {
        let of_thread = || (0..10).filter(|_| limiter.check("api", "a").expect("an answer").allowed()).count();
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(of_thread)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(admitted, 100);
}

/// Asks a second question as soon as the first one is answered.
struct AsksAgain(Mutex<Asked>);

type Asked = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Wake for AsksAgain {
    fn wake(self: Arc<Self>) {
        let mut second = self.0.lock().expect("no panic");
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // A thread that was started for it would make its call meanwhile.
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_caller_that_waits_makes_every_call() {
    let threads: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let seen = Arc::clone(&threads);
    let callers = Arc::new(CallerQuestions::new(move |_| {
        seen.lock().expect("no panic").push(std::thread::current().id());
        Some(Ok(Reply::Values(None, vec![None])))
    }));
    let post = Arc::clone(&callers);
    let store = Arc::new(HostStore {
        name: "Own".to_owned(),
        scans: false,
        has_epoch: false,
        all_or_none: false,
        max_value: 1_000,
        post: Box::new(move |question| post.post(question)),
        callers: None,
        data: None,
    });
    let read = || -> Asked {
        let store = Arc::clone(&store);
        Box::pin(async move { drop(store.read(&[b"a"], Duration::from_secs(60)).await) })
    };
    let second = Arc::new(AsksAgain(Mutex::new(read())));
    let caller = WaitingCaller::enter(Arc::clone(&callers) as Arc<dyn CallerQueue>);
    let mut first = read();
    assert!(first.as_mut().poll(&mut Context::from_waker(&Waker::from(second))).is_pending());
    let two = || threads.lock().expect("no panic").len() == 2;
    caller.work(&mut || two(), Instant::now() + Duration::from_secs(60));
    assert_eq!(*threads.lock().expect("no panic"), [std::thread::current().id(); 2]);
}
