//! Error codes are part of the contract: `tests/errors.json` lists them for every language.

use serde_json::Value;
use tidegate::ErrorKind;

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
