//! Behaviour as data: every file of `tests/vectors`, over every store and through both limiters.

use tidegate_tests::budget::is_full;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::vectors::{Case, Variant, cases, files};

/// Runs the cases over a store, through both limiters or the asynchronous one alone.
fn hold_over(store: &str, both: bool, cases: &[Case]) {
    for is_async in if both { &[false, true][..] } else { &[true] } {
        let variant = Variant { store: store.to_owned(), is_async: *is_async };
        let mismatches: Vec<String> = cases.iter().filter_map(|case| case.run(&variant).err()).collect();
        assert!(mismatches.is_empty(), "{} mismatches\n\n{}", mismatches.len(), mismatches.join("\n\n"));
    }
}

/// Runs the cases of a file over memory, a file and a server.
fn hold(file: &str) {
    let (server, shared, cases) = (Servers::start(Kind::Single), SharedFile::new(), cases(file));
    hold_over("memory://", true, &cases);
    hold_over(&shared.url("max_bytes=16MB"), true, &cases);
    hold_over(server.url(), true, &cases);
    // Both limiters share the code behind the protocol of the store.
    hold_over(&format!("{}?protocol=3", server.url()), is_full(), &cases);
}

/// Makes a test of each file.
macro_rules! files {
    ($($name:ident: $file:literal,)+) => {
        $(
            #[test]
            fn $name() {
                hold($file);
            }
        )+

        #[test]
        fn every_file_has_its_test() {
            assert_eq!(files(), [$($file),+]);
        }
    };
}

files! {
    bad_input: "bad-input",
    block: "block",
    calendar_window: "calendar-window",
    change: "change",
    check_all: "check-all",
    clocks: "clocks",
    concurrency: "concurrency",
    count_denied: "count-denied",
    escalation: "escalation",
    fixed_window: "fixed-window",
    gcra: "gcra",
    give_back: "give-back",
    journal: "journal",
    keys: "keys",
    leaky_bucket: "leaky-bucket",
    next_after: "next-after",
    notation: "notation",
    overrides: "overrides",
    own_calendar: "own-calendar",
    partial: "partial",
    policies: "policies",
    priorities: "priorities",
    shadow: "shadow",
    sliding_counter: "sliding-counter",
    sliding_log: "sliding-log",
    sliding_window: "sliding-window",
    token_bucket: "token-bucket",
    turns: "turns",
    units: "units",
    waiting: "waiting",
}

#[test]
fn hold_on_postgres() {
    let server = Servers::start(Kind::Postgres);
    let cases: Vec<Case> = files().iter().flat_map(|file| cases(file)).collect();
    // Both limiters share the code behind the store.
    hold_over(&format!("{}?create=yes", server.url()), is_full(), &cases);
}

#[test]
fn hold_on_a_cluster() {
    let cluster = Servers::start(Kind::Cluster);
    let cases: Vec<Case> = files().iter().flat_map(|file| cases(file)).collect();
    // Both limiters share the code behind the topology of the store.
    hold_over(cluster.url(), is_full(), &cases);
}

#[test]
fn every_algorithm_has_its_file() {
    for algorithm in tidegate::Algorithm::ALL {
        assert!(files().iter().any(|file| file == algorithm.name()), "tests/vectors/{algorithm}.json");
    }
}
