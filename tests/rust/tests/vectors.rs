//! Behaviour as data: every file of `tests/vectors`, over every store and through both limiters.

use tidegate_tests::budget::is_full;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::vectors::{Case, Variant, cases};

/// Files that are not run here, each with its reason.
const SKIPPED: [&str; 0] = [];

/// Cases that describe a rule as it should be, and that fail. A case that passes must leave this list.
const PENDING: [&str; 0] = [];

#[test]
fn hold_over_every_store() {
    let (server, cluster) = (Servers::start(Kind::Single), Servers::start(Kind::Cluster));
    let (redis, shared) = (server.url(), SharedFile::new());
    let (pending, cases): (Vec<Case>, Vec<Case>) =
        cases(&SKIPPED).into_iter().partition(|case| PENDING.contains(&case.name.as_str()));
    assert_eq!(pending.len(), PENDING.len(), "every pending case exists");
    let file = shared.url("max_bytes=16MB");
    let protocol_3 = format!("{redis}?protocol=3");
    for store in ["memory://", &file, redis, &protocol_3, cluster.url()] {
        // Both limiters share the code behind the store's protocol and its topology.
        let both = is_full() || [&protocol_3, cluster.url()].iter().all(|one| *one != store);
        for is_async in if both { &[false, true][..] } else { &[true] } {
            let variant = Variant { store: store.to_owned(), is_async: *is_async };
            let mismatches: Vec<String> = cases.iter().filter_map(|case| case.run(&variant).err()).collect();
            assert!(mismatches.is_empty(), "{} mismatches\n\n{}", mismatches.len(), mismatches.join("\n\n"));
            for case in &pending {
                assert!(case.run(&variant).is_err(), "{} holds over {variant:?}: it is pending no more", case.name);
            }
        }
    }
}

#[test]
fn every_algorithm_has_its_file() {
    for algorithm in tidegate::Algorithm::ALL {
        let name = format!("{}: ", algorithm.name());
        assert!(cases(&SKIPPED).iter().any(|case| case.name.starts_with(&name)), "tests/vectors/{algorithm}.json");
    }
}
