//! Memory, eviction and persistence, which decide if the server can forget limits.

use super::finding::Finding;
use crate::number_text::bytes;
use crate::reply::Info;

/// The used share of maxmemory that is worth a note.
const NEARLY_FULL: f64 = 0.9;

pub(super) fn examine(info: &Info) -> Vec<Finding> {
    let mut findings = vec![eviction(info), room(info)];
    findings.extend(persistence(info));
    findings
}

/// Examines if the server forgets keys when it is full.
pub(super) fn eviction(info: &Info) -> Finding {
    let Some(policy) = info.get("maxmemory_policy") else {
        return Finding::note("eviction", "the server does not report its maxmemory-policy")
            .advice("it must be noeviction");
    };
    if policy == "noeviction" {
        return Finding::ok("eviction", "maxmemory-policy noeviction");
    }
    let evicted = info.number("evicted_keys").filter(|count| *count > 0);
    let so_far = evicted.map_or_else(String::new, |count| format!("; it has evicted {count} keys since it started"));
    let message = format!(
        "maxmemory-policy {policy} forgets limits and blocks when the memory is full, and callers get past them{so_far}"
    );
    Finding::problem("eviction", message).advice(
        "run CONFIG SET maxmemory-policy noeviction, and write the same into its configuration file. A server that is also a \
         cache needs eviction, so give the limits a separate server",
    )
}

fn room(info: &Info) -> Finding {
    let (used, most) = (info.number("used_memory").unwrap_or(0) as f64, info.number("maxmemory").unwrap_or(0) as f64);
    if most == 0.0 {
        let message = format!("{} used, and no maxmemory: the server may grow until the system ends it", bytes(used));
        return Finding::note("memory", message)
            .advice("set maxmemory to what the machine can spare; `tidegate size` estimates the memory of the keys");
    }
    let share = used / most;
    let message = format!("{} of {} used ({:.0} %)", bytes(used), bytes(most), share * 100.0);
    if share >= 1.0 {
        return Finding::problem(
            "memory",
            format!("{message}: the server refuses writes (OOM), so no check can be counted"),
        )
        .advice(
            "raise maxmemory, or remove other data from the server; `tidegate size` estimates the memory of the keys",
        );
    }
    if share >= NEARLY_FULL {
        return Finding::note("memory", format!("{message}: when it is full, the server refuses writes"))
            .advice("raise maxmemory, or remove other data from the server");
    }
    Finding::ok("memory", message)
}

fn persistence(info: &Info) -> Option<Finding> {
    if info.get("loading") == Some("1") {
        return Some(Finding::problem("persistence", "the server is loading its data and serves no call yet"));
    }
    if info.get("rdb_last_bgsave_status").is_some_and(|status| status != "ok") {
        let message = "the last snapshot failed: the server may refuse all writes (MISCONF)";
        return Some(Finding::problem("persistence", message).advice(
            "read its log: a full disk is the usual reason. If you want no snapshots, run CONFIG SET save \"\"",
        ));
    }
    if info.get("aof_last_write_status").is_some_and(|status| status != "ok") {
        return Some(
            Finding::problem("persistence", "the append-only file cannot be written: the server refuses all writes")
                .advice("read its log: a full disk is the usual reason"),
        );
    }
    info.get("aof_enabled").map(|enabled| {
        if enabled == "1" {
            Finding::ok("persistence", "append-only file: a restart keeps usage up to its last sync")
        } else {
            Finding::note("persistence", "no append-only file: a restart forgets the usage since the last snapshot")
                .advice("that is fine for short periods. For quotas of days or months, set appendonly yes")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_server_that_forgets_or_is_full_is_a_problem() {
        let level = |check: fn(&Info) -> Finding, text: &str| check(&Info::from_text(text)).level;
        assert_eq!(level(eviction, "maxmemory_policy:noeviction"), Level::Ok);
        assert_eq!(level(eviction, "maxmemory_policy:allkeys-lru"), Level::Problem);
        assert_eq!(level(eviction, "maxmemory_policy:volatile-ttl"), Level::Problem);
        assert_eq!(level(room, "used_memory:10\nmaxmemory:0"), Level::Note);
        assert_eq!(level(room, "used_memory:10\nmaxmemory:100"), Level::Ok);
        assert_eq!(level(room, "used_memory:95\nmaxmemory:100"), Level::Note);
        assert_eq!(level(room, "used_memory:100\nmaxmemory:100"), Level::Problem);
    }

    #[test]
    fn a_failed_snapshot_is_a_problem() {
        let found = |text: &str| persistence(&Info::from_text(text)).map(|finding| finding.level);
        assert_eq!(found("rdb_last_bgsave_status:err\naof_enabled:0"), Some(Level::Problem));
        assert_eq!(found("rdb_last_bgsave_status:ok\naof_enabled:1"), Some(Level::Ok));
        assert_eq!(found("aof_enabled:0"), Some(Level::Note));
        assert_eq!(found(""), None);
    }
}
