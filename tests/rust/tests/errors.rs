//! Error codes are part of the contract: `tests/errors.json` lists them for every language.

use serde_json::Value;
use tidegate::{Algorithm, ErrorKind, Limit, Limiter, Options, Period, Policy};

#[test]
fn every_kind_is_in_the_table_and_nothing_else_is() {
    let table: Value = serde_json::from_str(include_str!("../../errors.json")).expect("the table is JSON");
    let rows = table.as_array().expect("the table is a list");
    assert_eq!(rows.len(), ErrorKind::ALL.len());
    for (row, kind) in rows.iter().zip(ErrorKind::ALL) {
        assert_eq!(row["code"], kind.code());
        assert_eq!(row["kind"], format!("{kind:?}"));
        // Python and Node have one class for all errors of the store, and one for all errors of policies.
        assert_eq!(row["python"] == "StoreError", kind.is_store(), "{row}");
        assert_eq!(row["python"] == "PolicyError", kind.code().starts_with("policy_"), "{row}");
        assert_eq!(row["python"], row["node"]);
    }
}

#[test]
fn the_codes_are_those_that_were_promised() {
    let promised = [
        "policy_invalid",
        "policy_unknown",
        "cost_invalid",
        "key_invalid",
        "config_invalid",
        "store_unavailable",
        "store_timeout",
        "store_rejected",
        "closed",
    ];
    assert_eq!(ErrorKind::ALL.map(ErrorKind::code), promised);
}

#[test]
fn mistakes_in_the_parts_of_a_policy_are_named() {
    let minute = Period::from_micros(60_000_000).expect("a period");
    let limit = |algorithm: Algorithm| Limit::new(algorithm, 5, minute).expect("a limit");
    let (window, bucket) = (|| limit(Algorithm::FixedWindow), || limit(Algorithm::TokenBucket));
    let of = |limits: Vec<Limit>, options: Options| Policy::new(limits, options);
    let mistakes = [
        (window().with_burst(6).err(), "burst means nothing to fixed-window"),
        (window().with_initial(1).err(), "initial means nothing to fixed-window"),
        (window().with_precision(10).err(), "precision means nothing to fixed-window"),
        (bucket().with_initial(6).err(), "initial 6 is more than the bucket holds (5)"),
        (Limit::new(Algorithm::Gcra, 10_u64.pow(12) + 1, minute).err(), "count 1000000000001 is too large"),
        (bucket().with_burst(10_u64.pow(12) + 1).err(), "burst 1000000000001 is too large"),
        (of(Vec::new(), Options::default()).err(), "a policy has 0 limits"),
        (of(vec![window(); 17], Options::default()).err(), "a policy has 17 limits"),
        (of(vec![window()], Options { journal: 10_001, ..Options::default() }).err(), "journal 10001 is too long"),
        (
            Limiter::builder().policy("login", "5/s").and_then(|builder| builder.policy("login", "6/s")).err(),
            "there are two policies of the name \"login\"",
        ),
    ];
    for (error, expected) in mistakes {
        let error = error.unwrap_or_else(|| panic!("no error, but expected {expected}"));
        assert_eq!(error.kind(), ErrorKind::PolicyInvalid, "{error}");
        assert!(error.message().starts_with(expected), "{error}, but expected {expected}");
    }
}
