//! The verbs that examine a store, on PostgreSQL.

mod support;

use serde_json::Value;
use tidegate::Limiter;
use tidegate_tests::servers::{Kind, Servers};

use support::{Scratch, run};

/// The checks with a note or a problem. A busy machine has slow round trips.
fn levels(url: &str) -> (i32, Vec<String>) {
    let ran = run(&["doctor", "--json", "--timeout", "10s", "--store", url]);
    let report = ran.json();
    let findings = report["stores"][0]["findings"].as_array().expect("findings").clone();
    let bad = findings
        .iter()
        .filter(|finding| finding["level"] != "ok" && finding["check"] != "round trip")
        .filter_map(|finding| finding["check"].as_str());
    (ran.code, bad.map(str::to_owned).collect())
}

#[test]
fn doctor_size_and_top_examine_a_table() {
    let server = Servers::start(Kind::PgBouncer);
    let (url, pooler) = (server.url_of("primary"), server.url());
    assert_eq!(levels(url), (1, vec!["table".to_owned(), "a check".to_owned()]));
    assert_eq!(run(&["setup", url]).code, 0);
    assert_eq!(levels(url), (0, Vec::new()));
    assert_eq!(levels(pooler), (0, Vec::new()));
    assert_eq!(levels(&format!("{pooler}?prepare=yes")).1[0], "pooler");
    server.command(0, &["CREATE ROLE app LOGIN"]);
    let (code, bad) = levels(&url.replace("harness@", "app@"));
    assert_eq!((code, &*bad[0]), (1, "table"));
    let (code, bad) = levels(&format!("{url}?options=-c%20default_transaction_read_only%3Don"));
    assert_eq!((code, &*bad[0]), (1, "role"));
    server.kill(1);
    assert_eq!(levels(pooler).0, 2);

    let limiter = Limiter::builder().store(url).timeout(std::time::Duration::from_secs(10)).build().expect("a limiter");
    for number in 0..1_200 {
        limiter.check("5/hour", &format!("key {number}")).expect("a decision");
    }
    while limiter.check("5/hour", "alice").expect("a decision").allowed() {}
    let scratch = Scratch::new("top-postgres");
    let policies = scratch.file("policies.yaml");
    std::fs::write(&policies, "policies: {'5/hour': 5/hour}").expect("a file");
    let arguments = ["--policies", &policies, "--timeout", "10s", "--interval", "100ms", "--sample", "2000", "--json"];
    let top = run(&[&["top", "--store", url], &arguments[..]].concat());
    assert_eq!((top.code, &*top.error), (0, ""));
    let reading: Value = top.json();
    assert_eq!(
        (&reading["servers"], &reading["of_prefix"], &reading["looked_at"]),
        (&1.into(), &1_201.into(), &1_201.into())
    );
    assert_eq!((reading["keys"].as_array().map(Vec::len), &reading["keys"][0]["remaining"]), (Some(1), &0.into()));

    let size = run(&["size", "--rate", "1k/s", "--keys", "1M", "20/minute", "--store", url, "--timeout", "10s"]);
    assert_eq!((size.code, &*size.error), (0, ""));
    assert!(size.out.contains("disk of the table") && !size.out.contains("primaries"), "{}", size.out);
    assert_eq!(server.command(0, &["SELECT count(*) FROM tidegate"])[0], "1201", "nothing is left");
}
