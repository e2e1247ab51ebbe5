//! The output of the verbs on a store about units and classes of calls.

mod support;

use serde_json::json;
use tidegate_tests::servers::{Kind, Servers};

use support::{golden, run, without_numbers};

#[test]
fn the_units_and_the_classes_of_a_key() {
    let redis = Servers::start(Kind::Single);
    let tidegate =
        |arguments: &[&str]| run(&[arguments, &["--store", redis.url(), "--policies", "units.yaml"]].concat());
    assert_eq!(tidegate(&["check", "two", "org", "--cost", "tokens=69500", "--priority", "batch"]).code, 0);
    let inspected = tidegate(&["inspect", "two", "org"]);
    assert_eq!((inspected.code, inspected.error.as_str()), (0, ""));
    golden("inspect-units", &without_numbers(&inspected.out));
    assert!(inspected.out.contains("69,500 of 100,000 tokens used"), "{}", inspected.out);
    // 150 of 500 and 30,000 of 100,000 tokens stay free of batch calls. 349 and 500 are left for these calls.
    assert!(
        inspected.out.contains("batch leaves 150 and 30,000 tokens free: 349 and 500 tokens left for it, next now"),
        "{}",
        inspected.out
    );
    let json = tidegate(&["inspect", "two", "org", "--json"]).json();
    let batch = json!([{
        "class": "batch", "part": "30%", "free": [150, 30_000], "takes": [350, 70_000], "remaining": [349, 500],
        "next_after": 0.0,
    }]);
    assert_eq!(json["classes"], batch);
    assert_eq!(tidegate(&["inspect", "--key", "org", "--json"]).json()["policies"][0]["classes"], batch);
    // The key gets an override, and the class leaves the same part of its limits.
    assert_eq!(tidegate(&["override", "two", "org", "fixed-window 200000 tokens/hour"]).code, 0);
    let overridden = tidegate(&["inspect", "two", "org"]);
    assert!(overridden.out.contains("69,500 of 200,000 tokens used"), "{}", overridden.out);
    assert!(
        overridden.out.contains("batch leaves 60,000 tokens free: 70,500 tokens left for it"),
        "{}",
        overridden.out
    );
    assert_eq!(tidegate(&["override", "two", "org", "none"]).code, 0);
    let unlimited = tidegate(&["inspect", "two", "org"]);
    assert!(!unlimited.out.contains("batch") && unlimited.out.contains("no limit"), "{}", unlimited.out);
    assert_eq!(tidegate(&["charge", "two", "full", "tokens=100000,cost=1"]).code, 0);
    let top = tidegate(&["top", "--readings", "1"]);
    assert!(top.out.contains("0 of 100,000 tokens"), "{}", top.out);
    let top = tidegate(&["top", "--readings", "1", "--json"]).json();
    assert_eq!((&top["keys"][0]["limit"], &top["keys"][0]["unit"]), (&json!(100_000), &json!("tokens")));
    let size = tidegate(&["size", "two", "--rate", "1/s", "--keys", "1", "--json"]);
    assert_eq!((size.code, &size.json()["measured"]), (0, &true.into()), "{}", size.error);
}
