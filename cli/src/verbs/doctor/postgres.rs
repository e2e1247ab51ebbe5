//! Examines the table of PostgreSQL, its server, and the way there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::host::{KeyNames, StoredTable, TableFacts};
use tidegate_simulate::text::number;

use super::finding::Finding;
use super::{StoreReport, clock, unreachable};
use crate::number_text::bytes;
use crate::time_text::length;

/// The oldest version that Tidegate supports.
const OLDEST: i64 = 140_000;
/// The age of a snapshot that keeps many old rows of a hot key alive: in seconds and in transactions.
const OLD_SECONDS: f64 = 10.0;
const OLD_TRANSACTIONS: i64 = 100_000;
/// A table with so many dead rows, and more of them than live ones, is not vacuumed often enough.
const MANY_DEAD: i64 = 10_000;
/// A server that is twice as far away refuses writes as late.
const SLOW: Duration = Duration::from_millis(10);

impl StoreReport {
    pub(super) fn of_table(url: &str, prefix: &str, timeout: Duration) -> Self {
        let store = tidegate::host::without_secrets(url);
        let examined = StoredTable::open(url, &KeyNames::from(prefix), timeout).and_then(|table| table.examine());
        let (findings, was_asked) = match examined {
            Ok(facts) => (findings(&facts, url), true),
            Err(error) => (vec![unreachable(&error)], error.code() == "store_rejected"),
        };
        Self { store, kind: "postgres", findings, was_asked }
    }
}

fn findings(facts: &TableFacts, url: &str) -> Vec<Finding> {
    let version = format!("PostgreSQL {}", facts.version);
    let mut findings = vec![if facts.version_number >= OLDEST {
        Finding::ok("version", version)
    } else {
        Finding::problem("version", format!("{version} is too old")).advice("Tidegate needs PostgreSQL 14 or newer")
    }];
    if facts.is_readable {
        findings.push(
            Finding::note("transport", "statements, and the password, cross the network in plain text")
                .advice("add sslmode=verify-full to the options of the URL"),
        );
    }
    findings.push(if facts.is_read_only {
        Finding::problem("role", "it does not write: it is a standby, or read-only for this user")
            .advice("name the primary, or all hosts with commas between them: host1,host2")
    } else {
        Finding::ok("role", "it writes")
    });
    findings.push(table(facts));
    if facts.is_there {
        findings.push(bloat(facts));
    }
    findings.push(snapshot(facts));
    findings.push(pooler(facts, url));
    let connections = format!("{} of {} connections in use", facts.connections, facts.max_connections);
    findings.push(if facts.connections * 10 >= facts.max_connections * 9 {
        Finding::note("connections", connections).advice(
            "raise max_connections, lower `connections` in the URL, or use PgBouncer: a client beyond it is refused",
        )
    } else {
        Finding::ok("connections", connections)
    });
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    findings.push(clock::examine(facts.clock - here.as_secs_f64()));
    let round_trip = length(facts.round_trip);
    findings.push(if facts.round_trip >= SLOW {
        Finding::note("round trip", round_trip)
            .advice("bring the server nearer: from about 18 ms on it refuses every write as late")
    } else {
        Finding::ok("round trip", round_trip)
    });
    findings
}

fn table(facts: &TableFacts) -> Finding {
    let table = &facts.table;
    if !facts.is_there {
        return Finding::problem("table", format!("there is no table {table}")).advice(
            "make it with `tidegate setup URL`, or let your migrations run what `tidegate setup URL --print` prints",
        );
    }
    if !facts.lacks.is_empty() {
        return Finding::problem("table", format!("the user may not {} {table}", facts.lacks))
            .advice(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO the user"));
    }
    Finding::ok("table", format!("the user may read and write {table}"))
}

fn bloat(facts: &TableFacts) -> Finding {
    let message = format!(
        "{} rows in use and {} dead ones in {}",
        number(facts.live_rows.unsigned_abs()),
        number(facts.dead_rows.unsigned_abs()),
        bytes(facts.bytes as f64)
    );
    if facts.dead_rows > MANY_DEAD && facts.dead_rows > facts.live_rows {
        Finding::note("bloat", message).advice(format!(
            "VACUUM {}, and find out what holds autovacuum back: an old snapshot, or its settings",
            facts.table
        ))
    } else {
        Finding::ok("bloat", message)
    }
}

/// A transaction that stays open in the same database keeps the old rows of hot keys alive.
fn snapshot(facts: &TableFacts) -> Finding {
    let (seconds, transactions) = (facts.snapshot_seconds, facts.snapshot_transactions);
    if seconds < OLD_SECONDS && transactions < OLD_TRANSACTIONS {
        return Finding::ok("snapshots", "no old snapshot is open in this database");
    }
    let age = if seconds >= OLD_SECONDS {
        length(Duration::from_secs_f64(seconds))
    } else {
        format!("{} transactions", number(transactions.unsigned_abs()))
    };
    Finding::note("snapshots", format!("a transaction of this database has had its snapshot open for {age}"))
        .advice("hot keys become slow meanwhile: end it, or give Tidegate a database of its own on the same server")
}

fn pooler(facts: &TableFacts, url: &str) -> Finding {
    match (facts.is_pooled, url.contains("prepare=yes")) {
        (false, _) => Finding::ok("pooler", "each connection has a session of its own"),
        (true, false) => Finding::ok("pooler", "connections share sessions: statements are sent whole"),
        (true, true) => Finding::problem("pooler", "connections share sessions, and the URL has prepare=yes")
            .advice("leave prepare=yes out, unless the pooler is PgBouncer 1.21 or newer with max_prepared_statements"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn each_defect_has_its_finding() {
        let right = TableFacts {
            version_number: 150_018,
            is_there: true,
            max_connections: 100,
            clock: SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64(),
            ..TableFacts::default()
        };
        let worst = |facts: &TableFacts, url: &str| {
            let found = findings(facts, url).into_iter().filter(|finding| finding.level != Level::Ok);
            found.map(|finding| finding.check).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(worst(&right, "postgresql://h/d"), "");
        type Change = fn(&mut TableFacts);
        let cases: [(&str, Change); 9] = [
            ("version", |facts| facts.version_number = 130_000),
            ("transport", |facts| facts.is_readable = true),
            ("role", |facts| facts.is_read_only = true),
            ("table", |facts| facts.is_there = false),
            ("table", |facts| facts.lacks = "INSERT".to_owned()),
            ("bloat", |facts| facts.dead_rows = 20_000),
            ("snapshots", |facts| facts.snapshot_seconds = 60.0),
            ("snapshots", |facts| facts.snapshot_transactions = 1_000_000),
            ("connections", |facts| facts.connections = 95),
        ];
        for (check, breaks) in cases {
            let mut facts = right.clone();
            breaks(&mut facts);
            assert_eq!(worst(&facts, "postgresql://h/d"), check);
        }
        assert_eq!(worst(&TableFacts { is_pooled: true, ..right }, "postgresql://h/d?prepare=yes"), "pooler");
    }
}
