//! Limiters on a store of the application.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::time::Duration;

use tidegate::store::{Change, KeyValueStore, StoreAnswer, StoreFailure, Swapped, Value, verify};
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
