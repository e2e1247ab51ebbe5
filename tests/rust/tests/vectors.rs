//! Behaviour as data: every file of `tests/vectors`, over every store and through both limiters.

use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::vectors::{Way, cases};

/// Files that are not run here, each with its reason. There is none: think twice.
const SKIPPED: [&str; 0] = [];

#[test]
fn hold_over_every_store() {
    let server = Servers::start(Kind::Single);
    let redis = server.url().to_owned();
    let mut complaints = Vec::new();
    for store in ["memory://".to_owned(), redis.clone(), format!("{redis}?protocol=3")] {
        for tasks in [false, true] {
            let way = Way { store: store.clone(), tasks };
            complaints.extend(cases(&SKIPPED).iter().filter_map(|case| case.run(&way).err()));
        }
    }
    assert!(complaints.is_empty(), "{} complaints\n\n{}", complaints.len(), complaints.join("\n\n"));
}

#[test]
fn every_algorithm_has_its_file() {
    for algorithm in tidegate::Algorithm::ALL {
        let name = format!("{}: ", algorithm.name());
        assert!(cases(&SKIPPED).iter().any(|case| case.name.starts_with(&name)), "tests/vectors/{algorithm}.json");
    }
}
