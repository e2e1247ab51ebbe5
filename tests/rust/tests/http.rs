//! The rules of HTTP: the data in `tests/http`, and properties that hold for all input.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::{Value, json};
use sfv::{BareItem, List, ListEntry, Parser};
use tidegate::http::{
    ClientIp, Headers, MAX_BODY, Observation, Peer, ResponseReader, Trusted, anonymous, hashed, headers, named,
    placed_key, problem, status,
};
use tidegate::policy::{Format, PolicyFile};
use tidegate::{Builder, Cost, Decision, Error, Limiter, ManualClock, Policy, Unit, Units};

const START: u64 = 1_704_067_200_000_000;

fn cases() -> Vec<(String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../http");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("tests/http is there").map(|entry| entry.expect("listed").path()).collect();
    // `tests/llm` runs `llm.json`, and `tests/tower` runs `layered-keys.json`.
    let elsewhere = |path: &PathBuf| path.ends_with("llm.json") || path.ends_with("layered-keys.json");
    let is_here = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json") && !elsewhere(path);
    files.retain(is_here);
    files.sort();
    let read = |path: &PathBuf| {
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("readable")).expect("JSON");
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let named = move |case: &Value| (format!("{stem}: {}", case["name"].as_str().expect("a name")), case.clone());
        file["cases"].as_array().expect("cases").iter().map(named).collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

fn texts(list: &Value) -> Vec<String> {
    let text = |text: &Value| text.as_str().expect("a text").to_owned();
    list.as_array().map(|list| list.iter().map(text).collect()).unwrap_or_default()
}

fn peer(case: &Value) -> Peer<'_> {
    match case["peer"].as_str() {
        Some(address) => Peer::Address(address),
        None if case["unix"] == true => Peer::Unix,
        None => Peer::Missing,
    }
}

fn client(case: &Value) -> Result<ClientIp, Error> {
    let prefix = case.get("ipv6_prefix").map_or(64, |prefix| prefix.as_u64().expect("a number") as u8);
    let trusted = match case["trusted"].as_i64() {
        Some(hops) => Trusted::hops(hops)?,
        None => Trusted::parse(texts(&case["trusted"]))?,
    };
    ClientIp::new(trusted, prefix)
}

fn limiter(policies: &Value, start: u64) -> (Limiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Duration::from_micros(start)));
    let text = json!({ "policies": policies }).to_string();
    let file = PolicyFile::parse(&text, Format::Json, None).expect("policies");
    let add = |builder: Builder, policy: &Policy| builder.named(policy.clone()).expect("its name is its own");
    let builder = file.policies().iter().fold(Builder::default(), add);
    (builder.clock(Arc::clone(&clock)).build().expect("a limiter"), clock)
}

fn shown(decision: &Decision, which: Headers) -> Value {
    headers(decision, which).iter().map(|(name, value)| json!([name, value])).collect()
}

/// A field as an independent parser reads it.
fn read(fields: &[(&'static str, String)], name: &str) -> List {
    let value = fields.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str());
    Parser::new(value).parse().unwrap_or_else(|error| panic!("{name}: {value}: {error}"))
}

/// The items of a field by name, each with its whole numbers.
fn items(list: &List) -> BTreeMap<String, BTreeMap<String, i64>> {
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("an inner list") };
        let BareItem::String(name) = &item.bare_item else { panic!("no string item") };
        let number = |(key, value): (&sfv::Key, &BareItem)| value.as_integer().map(|n| (key.to_string(), n.into()));
        (name.as_str().to_owned(), item.params.iter().filter_map(number).collect())
    };
    let items: BTreeMap<_, _> = list.iter().map(item).collect();
    assert_eq!(items.len(), list.len(), "each item has a name of its own");
    items
}

fn legal(decision: &Decision) {
    let fields = headers(decision, Headers::Both);
    let (policies, limits) = (items(&read(&fields, "RateLimit-Policy")), items(&read(&fields, "RateLimit")));
    assert!(limits.keys().all(|name| policies.contains_key(name)), "{fields:?}");
    for (name, limit) in &limits {
        assert!((0..=policies[name]["q"]).contains(&limit["r"]), "{fields:?}");
    }
}

fn step(limiter: &Limiter, clock: &ManualClock, start: u64, step: &Value) -> Option<Decision> {
    if let Some(at) = step["at"].as_u64() {
        clock.set(Duration::from_micros(start + at));
    }
    let text = |value: &Value, name: &str, default: &str| value[name].as_str().unwrap_or(default).to_owned();
    let (policy, key) = (text(step, "policy", "p"), text(step, "key", ""));
    let cost = |value: &Value| match value["cost"].as_object() {
        None => Cost::from(value["cost"].as_u64().unwrap_or(1)),
        Some(units) => {
            units.iter().map(|(name, units)| (name, units.as_u64().expect("a number"))).collect::<Units>().into()
        }
    };
    let decision = match step["do"].as_str().expect("do") {
        "check" => limiter.check_with(policy.as_str(), &key, &cost(step).into()),
        "peek" => limiter.peek(policy.as_str(), &key, cost(step)),
        "charge" => limiter.charge(policy.as_str(), &key, cost(step)),
        "block" => {
            limiter.block(policy.as_str(), &key, Duration::from_micros(step["for"].as_u64()?)).expect("blocked");
            return None;
        }
        "check_all" => {
            let entries: Vec<(String, String, Cost)> = step["entries"]
                .as_array()?
                .iter()
                .map(|entry| (text(entry, "policy", "p"), text(entry, "key", ""), cost(entry)))
                .collect();
            limiter.check_all(entries)
        }
        other => panic!("a step cannot {other:?}"),
    };
    Some(decision.expect("an answer"))
}

fn answers(case: &Value) {
    let policies = case.get("policies").cloned().unwrap_or_else(|| json!({ "p": case["policy"] }));
    let start = case["start"].as_u64().unwrap_or(START);
    let (limiter, clock) = limiter(&policies, start);
    for one in case["steps"].as_array().expect("steps") {
        for _ in 1..one["times"].as_u64().unwrap_or(1) {
            step(&limiter, &clock, start, one);
            clock.advance(Duration::from_micros(one["every"].as_u64().unwrap_or(0)));
        }
        let (decision, expected) = (step(&limiter, &clock, start, one), &one["expect"]);
        let Some(decision) = decision else { continue };
        legal(&decision);
        if let Some(wanted) = expected["status"].as_u64() {
            assert_eq!(u64::from(status(&decision)), wanted, "{one}");
        }
        for (which, wanted) in expected["headers"].as_object().into_iter().flatten() {
            assert_eq!(&shown(&decision, which.parse().expect("a choice")), wanted, "{which} of {one}");
        }
        if let Some(wanted) = expected.get("problem") {
            assert_eq!(&serde_json::from_str::<Value>(&problem(&decision)).expect("JSON"), wanted, "{one}");
        }
    }
}

/// An observation in the form of the vectors. Absent fields are left out, and so is the usual scope.
fn observed(observation: &Observation) -> Value {
    let seconds = |length: Option<Duration>| length.map(|length| length.as_micros() as f64 / 1e6);
    let Observation { name, limit, window, unit, remaining, reset_after, retry_after, scope, .. } = observation;
    let mut fields = json!({
        "name": name, "limit": limit, "window": seconds(*window), "unit": unit.as_ref().map(Unit::name),
        "remaining": remaining, "reset_after": seconds(*reset_after), "retry_after": seconds(*retry_after),
        "scope": Some(scope.name()).filter(|name| *name != "key"),
    });
    fields.as_object_mut().expect("fields").retain(|_, value| !value.is_null());
    fields
}

fn response(name: &str, case: &Value) {
    let response = &case["response"];
    let now = Duration::from_micros(case["now"].as_u64().map_or(START, |seconds| seconds * 1_000_000));
    let mut reader = ResponseReader::new(now);
    if let Some(status) = response["status"].as_u64() {
        reader = reader.status(status as u16);
    }
    if let Some(longest) = case["longest"].as_u64() {
        reader = reader.max_learned_wait(Duration::from_secs(longest));
    }
    let fields = response["headers"].as_array().expect("headers").iter().map(|field| {
        let [name, value] = [0, 1].map(|index| field[index].as_str().expect("a text"));
        (name, value)
    });
    let read = reader.read(fields, response["body"].as_str().unwrap_or_default().as_bytes());
    let said = |said: &Value| {
        let mut said = said.clone();
        for seconds in ["window", "reset_after", "retry_after"] {
            if let Some(value) = said.get_mut(seconds) {
                *value = json!(value.as_f64());
            }
        }
        said
    };
    let expected: Value = case["observations"].as_array().expect("observations").iter().map(said).collect();
    assert_eq!(read.observations.iter().map(observed).collect::<Value>(), expected, "{name}");
    assert_eq!(u64::from(read.ignored), case["ignored"].as_u64().unwrap_or(0), "{name}");
}

#[test]
fn what_is_read_of_a_response_is_bounded() {
    let read = |value: &str, body: &str| {
        let fields = (!value.is_empty()).then_some(("Retry-After", value));
        ResponseReader::new(Duration::ZERO).status(503).read(fields, body.as_bytes())
    };
    let body = r#"{"retry_after": 9}"#;
    let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
    let nine = [json!({ "retry_after": 9.0 })];
    assert_eq!(read("", &padded(MAX_BODY)).observations.iter().map(observed).collect::<Vec<_>>(), nine);
    assert_eq!(read("", &padded(MAX_BODY + 1)).observations, []);
    assert_eq!(read("", &"[".repeat(60_000)).observations, []);
    let nines = |count: usize| vec!["9"; count].join(",");
    assert_eq!(read(&nines(2_048), "").observations.iter().map(observed).collect::<Vec<_>>(), nine);
    let long = read(&nines(2_049), "");
    assert_eq!((long.observations.len(), long.ignored), (0, 1));
}

#[test]
fn the_vectors_hold() {
    for (name, case) in cases() {
        println!("{name}");
        let trusted = &case["trusted"];
        if !(trusted.is_null() || trusted.is_array() || trusted.is_i64()) {
            // Rust's types do not accept it.
            continue;
        }
        if case.get("steps").is_some() {
            answers(&case);
        } else if case.get("forwarded").is_some() {
            let client = client(&case).unwrap_or_else(|error| panic!("{name}: {error}"));
            match client.key(peer(&case), &texts(&case["forwarded"])) {
                Ok(key) => assert_eq!(key, case["key"], "{name}"),
                Err(error) => {
                    assert_eq!(error.code(), case["error"], "{name}: {error}");
                    assert!(error.message().contains(case["says"].as_str().expect("says")), "{name}: {error}");
                }
            }
        } else if case.get("response").is_some() {
            response(&name, &case);
        } else if let Some(secret) = case["secret"].as_str() {
            assert_eq!(hashed(secret), case["key"], "{name}");
        } else if let Some(client) = case["client"].as_str() {
            assert_eq!(anonymous(client), case["key"], "{name}");
        } else if let Some(user) = case["user"].as_str() {
            assert_eq!(&*named(user), case["key"], "{name}");
        } else if let Some(key) = case["of"].as_str() {
            assert_eq!(placed_key(case["place"].as_str(), case["method"].as_str(), key), case["key"], "{name}");
        } else {
            let error = match case["headers"].as_str() {
                Some(word) => word.parse::<Headers>().err(),
                None => client(&case).err(),
            };
            let error = error.unwrap_or_else(|| panic!("{name} is not refused"));
            assert_eq!(error.code(), case["error"], "{name}");
            assert!(error.message().contains(case["says"].as_str().expect("says")), "{name}: {error}");
        }
    }
}

/// Addresses, some of them trusted, and text that is not an address.
fn entry() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|bytes| Ipv4Addr::from(bytes).to_string().into_bytes()),
        any::<[u8; 3]>().prop_map(|[a, b, c]| format!("10.{a}.{b}.{c}").into_bytes()),
        any::<[u8; 3]>().prop_map(|[a, b, c]| format!("[::ffff:10.{a}.{b}.{c}]:80").into_bytes()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).to_string().into_bytes()),
        prop::collection::vec(any::<u8>().prop_filter("one entry", |byte| *byte != b','), 0..12),
    ]
}

/// The address in an entry, parsed differently from the core.
fn plainly(entry: &[u8]) -> Option<IpAddr> {
    let text = String::from_utf8(entry.to_vec()).ok()?;
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
    let text = text.strip_suffix(":80").filter(|text| text.ends_with(']') || !text.contains(':')).unwrap_or(text);
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn carries_ipv4(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => matches!(address.segments(), [0 | 0x64 | 0x2002, ..] | [0x2001, 0, ..]),
    }
}

fn trusted(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[0] == 10)
}

proptest! {
    #[test]
    fn nothing_left_of_an_untrusted_address_counts(
        entries in prop::collection::vec(entry(), 0..8),
        cuts in prop::collection::vec(any::<bool>(), 8),
        peer in prop::option::of(entry()),
    ) {
        let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
        for (index, entry) in entries.iter().enumerate() {
            if cuts[index] && index > 0 {
                lines.push(Vec::new());
            } else if index > 0 {
                lines.last_mut().expect("a line").push(b',');
            }
            lines.last_mut().expect("a line").extend(entry);
        }
        let peer = peer.map(|peer| String::from_utf8_lossy(&peer).into_owned());
        let client = ClientIp::new(Trusted::parse(["10.0.0.0/8"]).expect("a network"), 128).expect("a prefix");
        let key = client.key(peer.as_deref().map_or(Peer::Unix, Peer::Address), &lines);
        let Some(mut known) = peer.as_deref().and_then(|peer| plainly(peer.as_bytes())) else {
            // The core may read more forms of addresses. An untrusted peer is still not replaced by another address.
            return Ok(());
        };
        // Blank lines have no entry.
        let seen: Vec<&[u8]> = lines.iter().filter(|line| !line.trim_ascii().is_empty())
            .flat_map(|line| line.split(|byte| *byte == b',')).collect();
        for entry in seen.iter().rev() {
            match plainly(entry) {
                Some(address) if trusted(known) => known = address,
                _ => break,
            }
        }
        // Addresses that carry an IPv4 address are in `client-ip.json`.
        prop_assume!(!carries_ipv4(known));
        prop_assert_eq!(key.expect("a key"), known.to_string());
    }

    #[test]
    fn any_bytes_have_a_key(peer in prop::option::of(".*"), lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4)) {
        for proxies in [vec![], vec!["anyone"], vec!["loopback", "unix"]] {
            let client = ClientIp::new(Trusted::parse(proxies).expect("words"), 64).expect("a prefix");
            let key = client.key(peer.as_deref().map_or(Peer::Unix, Peer::Address), &lines);
            prop_assert!(key.is_ok_and(|key| !key.is_empty()) || peer.as_deref() == Some(""));
            prop_assert!(client.key(Peer::Missing, &lines).is_err());
        }
    }

    #[test]
    fn more_units_come_when_t_says_and_not_before(
        kind in 0usize..8, count in 1u64..20, millis in 1u64..200_000, costs in prop::collection::vec(1u64..6, 1..30),
        offset in 0u64..2_000_000, step in 0u64..3_000_000, charged in any::<bool>(),
    ) {
        let algorithms = ["fixed-window", "calendar-window", "sliding-window", "sliding-log", "sliding-counter", "token-bucket", "gcra", "leaky-bucket"];
        let notation = format!("{} {count}/{millis} ms", algorithms[kind]);
        prop_assume!(Policy::parse(&notation).is_ok());
        let (limiter, clock) = limiter(&json!({ "p": notation }), START + offset);
        for cost in costs {
            if charged {
                limiter.charge("p", "k", cost).expect("charged");
            }
            let decision = limiter.check_n("p", "k", cost).expect("an answer");
            let (now, left) = (decision.at(), decision.remaining());
            let limits = items(&read(&headers(&decision, Headers::Ietf11), "RateLimit"));
            let t = limits["p"].get("t").map(|t| Duration::from_secs(u64::try_from(*t).expect("not negative")));
            let left_at = |moment: Duration| {
                clock.set(moment);
                limiter.peek("p", "k", 1).expect("an answer").remaining()
            };
            if decision.allowed() {
                prop_assert_eq!(t.is_none(), left == decision.limit());
                if let Some(t) = t {
                    prop_assert!(left_at(now + t) > left, "{:?} {:?}", decision, limits);
                    // Rounded up to whole seconds, from a moment that may be 1 µs late.
                    let before = t.saturating_sub(Duration::from_micros(1_000_001));
                    prop_assert!(before.is_zero() || left_at(now + before) == left, "{:?} {:?}", decision, limits);
                }
            }
            clock.set(now + Duration::from_micros(step));
        }
    }

    #[test]
    fn a_client_that_waits_as_told_is_admitted(
        kind in 0usize..8, count in 1u64..20, millis in 1u64..200_000, costs in prop::collection::vec(1u64..6, 1..30),
        offset in 0u64..2_000_000, step in 0u64..3_000_000,
    ) {
        let algorithms = ["fixed-window", "calendar-window", "sliding-window", "sliding-log", "sliding-counter", "token-bucket", "gcra", "leaky-bucket"];
        let notation = format!("{} {count}/{millis} ms", algorithms[kind]);
        prop_assume!(Policy::parse(&notation).is_ok());
        let (limiter, clock) = limiter(&json!({ "p": notation }), START + offset);
        for cost in costs {
            let decision = limiter.check_n("p", "k", cost).expect("an answer");
            legal(&decision);
            clock.advance(Duration::from_micros(step));
            if decision.allowed() { continue }
            let fields = headers(&decision, Headers::Both);
            let number = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.parse::<u64>().expect("a number"));
            let t = items(&read(&fields, "RateLimit"))["p"].get("t").copied();
            let Some(wait) = number("Retry-After") else {
                prop_assert!(cost > count && t.is_none());
                continue;
            };
            prop_assert_eq!(t, Some(wait as i64));
            // After the announced wait, and at the moment of X-RateLimit-Reset.
            let reset = Duration::from_secs(number("X-RateLimit-Reset").expect("a moment"));
            for moment in [decision.at() + Duration::from_secs(wait), reset] {
                clock.set(moment.max(decision.at()));
                prop_assert!(limiter.peek("p", "k", cost).expect("an answer").allowed(), "{:?} {:?}", decision, fields);
            }
            prop_assert!(UNIX_EPOCH + reset >= decision.reset_at());
        }
    }
}
