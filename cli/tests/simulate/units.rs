//! Traffic that takes units and has classes.

use serde_json::json;

use crate::running::{command, done, golden, ran};

/// 10 calls and 1,000 tokens a minute. Batch calls leave 3 and 300 of them.
const LLM: &str = "llm";

#[test]
fn a_trace_says_units_and_classes() {
    let run =
        |more: &[&str]| done(&[&[LLM, "plain=fixed-window 4/minute", "--policies", "policies.yaml"], more].concat());
    let columns = run(&["--trace", "units.csv"]);
    golden("simulate/units", &columns.out);
    let json = run(&["--trace", "units.csv", "--json"]).json();
    // 400 and 300 tokens are taken. 50 more would leave 250, too little for a batch call. 300 without a class leave
    // none. A call without tokens takes one call, and 3 calls stay free.
    let llm = &json["policies"][0];
    assert_eq!((&llm["asked"], &llm["admitted"]), (&json!(5), &json!(4)));
    assert_eq!(llm["units"], json!({"tokens": {"asked": 1_050, "admitted": 1_000}}));
    assert_eq!(llm["classes"], json!({"batch": {"asked": 3, "admitted": 2}}));
    assert_eq!((&llm["worst"][0]["worst"], &llm["worst"][0]["unit"]), (&json!(5), &json!(null)));
    assert_eq!((&llm["worst"][1]["worst"], &llm["worst"][1]["unit"]), (&json!(1_000), &json!("tokens")));
    // A policy without tokens and classes takes the costs 1, 1, 1, 2 and 1. Only one of its 4 units is left for the cost 2.
    assert_eq!((&json["policies"][1]["admitted"], &json["policies"][1]["units"]), (&json!(4), &json!({})));
    let lines = run(&["--trace", "units.jsonl", "--priority-field", "class", "--json"]).json();
    assert_eq!(lines["policies"][0]["units"], llm["units"]);
    assert_eq!(lines["policies"][0]["classes"], llm["classes"]);
}

#[test]
fn a_pattern_takes_units_and_has_a_class() {
    let pattern =
        ["--pattern", "steady", "--rate", "1/s", "--duration", "20s", "--keys", "1", "--policies", "policies.yaml"];
    let run = |more: &[&str]| done(&[&[LLM, "--json"], &pattern[..], more].concat()).json();
    let policy = |json: &serde_json::Value| json["policies"][0].clone();
    // 1,000 tokens are ten calls of 100, or seven that leave 300.
    assert_eq!(policy(&run(&["--cost", "tokens=100"]))["admitted"], json!(10));
    let batch = run(&["--cost", "tokens=100", "--priority", "batch"]);
    assert_eq!(policy(&batch)["admitted"], json!(7));
    assert_eq!((&batch["traffic"]["cost"]["tokens"], &batch["traffic"]["priority"]), (&json!(100), &json!("batch")));
    assert!(
        batch["command"].as_str().is_some_and(|text| text.contains("--cost tokens=100 --priority batch")),
        "{batch:#}"
    );
    // Without --cost a call takes one of each.
    assert_eq!(policy(&run(&[]))["admitted"], json!(10));
    let wrong = ran(&mut command(&[&[LLM, "--priority", "bach"], &pattern[..]].concat()));
    assert!(wrong.code == 2 && wrong.error.contains("did you mean `batch`?"), "{}", wrong.error);
    let wrong = ran(&mut command(&[&[LLM, "--cost", "tokens=x"], &pattern[..]].concat()));
    assert!(wrong.code == 2 && wrong.error.contains("not a number of tokens"), "{}", wrong.error);
}

#[test]
fn a_trace_that_says_no_units_takes_its_cost_and_says_so() {
    let json = done(&[LLM, "--policies", "policies.yaml", "--trace", "columns.csv", "--json"]).json();
    assert!(json["notes"].to_string().contains("no column or field tokens"), "{json:#}");
    assert_eq!(json["policies"][0]["units"]["tokens"]["asked"], json["policies"][0]["units_asked"]);
    let wrong = ran(&mut command(&["5/s", "--trace", "units.csv", "--priority-field", "who"]));
    assert!(wrong.error.contains("has no column \"who\" for --priority-field"), "{}", wrong.error);
}
