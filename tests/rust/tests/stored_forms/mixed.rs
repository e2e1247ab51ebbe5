//! The version that knew no narrow form, and this one, at work on the same keys: no error, and nothing is forgotten.

use redis::Value;
use serde_json::Value as Json;
use tidegate::{Decision, Limiter};
use tidegate_tests::servers::{Kind, Servers};

use super::limiter;

/// What the former version sends.
const RECORDED: &str = include_str!("first_script.json");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn errors(value: &Value) -> Vec<String> {
    match value {
        Value::ServerError(error) => vec![format!("{error:?}")],
        Value::Array(items) => items.iter().flat_map(errors).collect(),
        _ => Vec::new(),
    }
}

/// A process of the former version, which checks one unit of one key.
struct Former {
    connection: redis::Connection,
    command: redis::Cmd,
}

impl Former {
    fn new(url: &str, script: &str, words: &Json) -> Self {
        let connection = redis::Client::open(url).expect("a URL").get_connection().expect("a connection");
        let mut command = redis::cmd("EVAL");
        command.arg(script);
        for word in words.as_array().expect("words") {
            command.arg(bytes(word.as_str().expect("a word")));
        }
        Self { connection, command }
    }

    fn check(&mut self, policy: &str) {
        let reply: Value = self.command.query(&mut self.connection).expect("a reply");
        assert_eq!(errors(&reply), Vec::<String>::new(), "{policy}");
    }
}

fn left(limiter: &Limiter, policy: &str) -> u64 {
    limiter.peek(policy, "k", 1).map(|decision: Decision| decision.remaining()).expect("a decision")
}

#[test]
fn what_one_version_charged_counts_for_the_other() {
    let servers = Servers::start(Kind::Single);
    let recorded: Json = serde_json::from_str(RECORDED).expect("JSON");
    let script = recorded["script"].as_str().expect("a script");
    for (policy, words) in recorded["calls"].as_object().expect("calls") {
        let mut former = Former::new(servers.url(), script, words);
        let present = limiter(servers.url(), "tg");
        let all = left(&present, policy);
        let mut used = 0;
        // Values become narrow, and wide again, and pass from one version to the other at each size.
        for units in [1, 40, 213, 1, 1, 1, 300, 2] {
            former.check(policy);
            used += 1;
            assert_eq!(left(&present, policy), all.saturating_sub(used), "{policy}, after the former version");
            if used + units > all {
                break;
            }
            assert!(present.check_n(policy, "k", units).expect("a decision").allowed(), "{policy}");
            used += units;
            assert_eq!(left(&present, policy), all - used, "{policy}, after this version");
        }
        present.refund(policy, "k", used - used.min(7)).expect("a refund");
        former.check(policy);
        let expected = all - used.min(7) - 1;
        assert!(left(&present, policy).abs_diff(expected) <= 1, "{policy}: {} of {expected}", left(&present, policy));
    }
}

/// A limit that both spend at once is never passed.
#[test]
fn both_versions_together_admit_no_more_than_the_limit() {
    let servers = Servers::start(Kind::Single);
    let recorded: Json = serde_json::from_str(RECORDED).expect("JSON");
    let script = recorded["script"].as_str().expect("a script");
    let policy = "gcra 200/30d";
    let mut former = Former::new(servers.url(), script, &recorded["calls"][policy]);
    let present = limiter(servers.url(), "tg");
    let mut admitted = 0;
    for _ in 0..150 {
        admitted += u64::from(present.check(policy, "k").expect("a decision").allowed());
        let before = left(&present, policy);
        former.check(policy);
        admitted += before - left(&present, policy);
    }
    assert_eq!(admitted, 200);
}
