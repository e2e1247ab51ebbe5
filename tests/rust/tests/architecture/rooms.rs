//! The rooms of the core, the rooms that each may name, and the paths that the transport's state machine must not name.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_modules::Crate;
use super::{Violations, files, hold};

const CORE: &str = "core/src/";

/// A part of the core: files, and the rooms that these may name.
struct Room {
    name: &'static str,
    /// The beginnings of the paths of its files. A file belongs to the room with the longest of these.
    files: &'static [&'static str],
    names: &'static [&'static str],
}

const fn room(name: &'static str, files: &'static [&'static str], names: &'static [&'static str]) -> Room {
    Room { name, files, names }
}

/// From top to bottom: a room names only rooms that come later, so the arrows point one way.
const ROOMS: &[Room] = &[
    room("root", &["lib.rs", "bench.rs", "bench/"], ANY),
    room(
        "host",
        &["host/"],
        &[
            "flow",
            "limiter",
            "http",
            "counting",
            "postgres",
            "application",
            "io",
            "machine",
            "url",
            "store",
            "decision",
            "request",
            "plan",
            "policy",
            BASE,
        ],
    ),
    room(
        "http layer",
        &["http/tower/", "http/outgoing/", "http/reqwest.rs", "http/named_policy.rs", "http/settling.rs"],
        &["flow", "limiter", "http", "http responses", "decision", "policy", BASE],
    ),
    room("flow", &["flow/"], &["limiter", "http responses", "decision", "plan", "policy", BASE]),
    room(
        "limiter",
        &["limiter/"],
        &[
            "http responses",
            "resilience",
            "counting",
            "postgres",
            "application",
            "io",
            "machine",
            "memory",
            "url",
            "store",
            "decision",
            "request",
            "plan",
            "policy",
            BASE,
        ],
    ),
    room("http", &["http/"], &["http responses", "http llm", "decision", "policy", BASE]),
    room("http llm", &["http/llm/"], &[BASE]),
    room("http responses", &["http/responses/", "http/field_names.rs"], &["policy", BASE]),
    room(
        "resilience",
        &["resilience/"],
        &["counting", "io", "memory", "url", "store", "usage", "request", "plan", "policy", BASE],
    ),
    room("postgres", &["store/postgres/"], &["io", "swap", "url", "store", "request", "policy", BASE]),
    room("application", &["store/application/"], &["swap", "store", "request", BASE]),
    room("io", &["store/redis/"], &["protocol", "script", "url", "store", "request", "plan", "policy", BASE]),
    room("protocol", &["store/redis/protocol/"], &["script", "url", "store", "request", BASE]),
    room("script", &["store/redis/script/"], &["request", "plan", "policy", BASE]),
    room("machine", &["store/machine/"], &["url", "store", "usage", "request", "plan", "policy", BASE]),
    room("swap", &["store/swap/"], &["store", "usage", "request", "plan", "policy", BASE]),
    room("memory", &["store/memory/"], &["url", "store", "usage", "request", "plan", BASE]),
    room("usage", &["store/usage/"], &["request", "plan", BASE]),
    room("url", &["store/url.rs", "store/url/"], &[BASE]),
    room("store", &["store/"], &["request", "plan", BASE]),
    room("decision", &["decision.rs", "decision/"], &["request", "plan", "policy", BASE]),
    room("counting", &["counting/"], &["request", "plan", BASE]),
    room("request", &["store/request", "store/key_names.rs", "store/stored_key.rs"], &["plan", BASE]),
    room("plan", &["plan/"], &["policy", BASE]),
    room("policy", &["policy/"], &["algorithm", "process", "error", "tables"]),
    room("process", &["process/"], &["algorithm", "error"]),
    room("algorithm", &["algorithm/"], &["error", "tables"]),
    room("error", &["error/"], &[]),
    room("tables", &["tables/"], &[]),
    room("cells", &["counting/cells.rs", "counting/histogram.rs"], &[]),
];

/// Every room.
const ANY: &[&str] = &["any"];
/// Stands for the rooms below all others.
const BASE: &str = "base";
const BASES: [&str; 5] = ["algorithm", "process", "error", "tables", "cells"];

fn room_of(file: &str) -> Option<&'static Room> {
    let inside = file.strip_prefix(CORE)?;
    let matching = ROOMS.iter().flat_map(|room| room.files.iter().map(move |begin| (begin, room)));
    matching.filter(|(begin, _)| inside.starts_with(**begin)).max_by_key(|(begin, _)| begin.len()).map(|(_, room)| room)
}

fn may_name(from: &Room, to: &Room) -> bool {
    let allowed = |name: &&str| *name == to.name || (*name == BASE && BASES.contains(&to.name));
    from.name == to.name || from.names == ANY || from.names.iter().any(allowed)
}

#[test]
fn arrows_point_one_way() {
    for (above, room) in ROOMS.iter().enumerate() {
        for name in room.names.iter().filter(|name| ![ANY[0], BASE].contains(name)) {
            let below = ROOMS.iter().position(|other| other.name == *name);
            assert!(below.is_some_and(|below| below > above), "{} names {name}, which is not below it", room.name);
        }
    }
    let mut found = Violations::new();
    for ((from, to), path) in Crate::read("core/src").edges() {
        let (Some(of_from), Some(of_to)) = (room_of(&from), room_of(&to)) else {
            let homeless = if room_of(&from).is_none() { from } else { to };
            found.entry(format!("{homeless} is in no room")).or_default();
            continue;
        };
        if !may_name(of_from, of_to) {
            let violation = format!("{} names {}", of_from.name, of_to.name);
            found.entry(violation).or_default().push(format!("{from} names {to}: {path}"));
        }
    }
    hold("rooms name only rooms below them", found);
}

/// Sockets, threads, clocks and wakers: beginnings of paths.
const IMPURE: [&str; 12] = [
    "std::net",
    "std::os",
    "std::thread",
    "std::sync::Condvar",
    "std::task",
    "std::time::Instant::now",
    "std::time::SystemTime",
    "tokio",
    "mio",
    "rustix",
    "quanta",
    "parking_lot",
];

#[test]
fn the_protocol_names_no_io() {
    let folder = format!("{CORE}store/redis/protocol");
    let mut found = Violations::new();
    if !files::exists(&folder) {
        found.insert("there is no store/redis/protocol".to_owned(), vec![]);
    }
    let core = Crate::read("core/src");
    for (place, module) in core.modules.iter().filter(|(_, module)| module.file.starts_with(&folder)) {
        for path in core.foreign(place) {
            if IMPURE.iter().any(|impure| path == *impure || path.starts_with(&format!("{impure}::"))) {
                found.entry(format!("the protocol names {path}")).or_default().push(module.file.clone());
            }
        }
    }
    hold("the protocol names no socket, thread, clock or waker", found);
}

/// The crates of the repository, and those of them that each may depend on.
const CRATES: [(&str, &[&str]); 5] = [
    ("core", &[]),
    ("simulate", &["tidegate"]),
    ("cli", &["tidegate", "tidegate-simulate"]),
    ("bindings-python", &["tidegate", "tidegate-cli"]),
    ("bindings-node", &["tidegate", "tidegate-cli"]),
];

#[test]
fn crates_depend_on_the_crates_below_them() {
    let mut found = Violations::new();
    for (folder, below) in CRATES {
        let manifest = files::read(&format!("{folder}/Cargo.toml"));
        let (_, listed) = manifest.split_once("\n[dependencies]\n").expect("dependencies");
        let lines = listed.lines().take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| line.split(['.', ' ']).next()).filter(|name| name.starts_with("tidegate"));
        for name in names.filter(|name| !below.contains(name)) {
            found.entry(format!("{folder} depends on {name}")).or_default();
        }
    }
    hold("crates depend on crates below them", found);
}

#[test]
fn the_core_knows_no_host_language() {
    let lock = files::read("Cargo.lock");
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = package.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).expect("a name");
        let list = package.split_once("dependencies = [").map_or("", |(_, rest)| rest);
        let of = list
            .split(']')
            .next()
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"')?.split(['"', ' ']).next());
        needs.entry(name).or_default().extend(of);
    }
    let (mut seen, mut open) = (BTreeSet::new(), vec!["tidegate"]);
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(&needs[name]);
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
    let bindings = seen.into_iter().filter(|name| name.starts_with("pyo3") || name.starts_with("napi"));
    let found = bindings.map(|name| (format!("the core needs {name}"), vec![])).collect();
    hold("the core needs neither pyo3 nor napi", found);
}
