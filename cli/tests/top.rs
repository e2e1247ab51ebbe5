//! `top` on real servers under load: what it shows, and that it costs the servers little.

mod support;

use std::env;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate::{Limiter, Policy, host};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

use support::{Scratch, command, golden, ran, without_numbers};

const POLICIES: &str = "policies: {login: fixed-window 5/hour, api: gcra 1000/hour}\n";

/// A process that publishes what it denies, until it is dropped.
struct PublishingProcess(Child);

impl PublishingProcess {
    fn start(folder: &str, store: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("this test"));
        child.args(["--ignored", "--exact", "publishing_process"]).env("TIDEGATE_TOP", folder).env("LOAD_STORE", store);
        Self(child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process"))
    }
}

impl Drop for PublishingProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs in a process of its own: limits are a property of the environment there.
#[test]
#[ignore = "a part of other tests, which start it"]
fn publishing_process() {
    let store = env::var("LOAD_STORE").expect("a store");
    let limiter = limiter(&store);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            over.store(true, Ordering::Relaxed);
        });
        for number in 0_u64.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            limiter.check("login", "alice\u{1b}[31m").expect("a decision");
            limiter.check("api", &format!("user {}", number % 500)).expect("a decision");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

fn limiter(store: &str) -> Limiter {
    let file = tidegate::PolicyFile::parse(POLICIES, tidegate::policy::Format::Yaml, None).expect("policies");
    let builder = Limiter::builder().store(store).deny_cache(Duration::ZERO).timeout(Duration::from_secs(5));
    let builder = file.policies().iter().try_fold(builder, |builder, policy| builder.named(policy.clone()));
    builder.and_then(tidegate::Builder::build).expect("a limiter")
}

fn login() -> Policy {
    Policy::parse("fixed-window 5/hour").and_then(|policy| policy.named("login")).expect("a policy")
}

fn top(store: &str, scratch: &Scratch, names: bool, arguments: &[&str]) -> support::Ran {
    let policies = scratch.file("policies.yaml");
    std::fs::write(&policies, POLICIES).expect("a file");
    let mut command = command(&["top", "--store", store, "--policies", &policies, "--timeout", "5s"]);
    command.args(arguments).env_remove("TIDEGATE_TOP");
    if names {
        command.env("TIDEGATE_TOP", scratch.file("names"));
    }
    ran(&mut command)
}

fn last_reading(ran: &support::Ran) -> Value {
    assert_eq!((ran.code, ran.error.as_str()), (0, ""));
    let line = ran.out.lines().last().expect("a reading");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
}

/// A key at its limit whose name no process publishes, and its digest.
fn limited(store: &str, key: &str) -> (Limiter, String) {
    let limiter = limiter(store);
    while limiter.check("login", key).expect("a decision").allowed() {}
    let digest = host::redis_key("tg", &login(), key)[2..].iter().map(|byte| format!("{byte:02x}")).collect();
    (limiter, digest)
}

fn names_folder(scratch: &Scratch) -> String {
    let folder = scratch.file("names");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn a_cluster_under_load() {
    let (servers, scratch) = (Servers::start(Kind::Cluster), Scratch::new("top-cluster"));
    let store = servers.url();
    let process = PublishingProcess::start(&names_folder(&scratch), store);
    let (limiter, digest) = limited(store, "carol");
    let keys = || -> i64 {
        (0..3).map(|server| servers.command(server, &["DBSIZE"]).as_i64().expect("a number of keys")).sum()
    };
    wait_until(Duration::from_secs(60), "the process has used many keys", || keys() > 150);
    // Limiters publish once a second: of four readings the last has two versions of their files.
    let reading = last_reading(&top(store, &scratch, true, &["--readings", "4", "--json"]));
    assert_eq!((&reading["servers"], &reading["failures"]), (&3.into(), &Value::Array(Vec::new())), "{reading}");
    assert!(reading["of_prefix"].as_u64() > Some(100), "{reading}");
    assert_eq!((&reading["names"]["limiters"], &reading["of_unknown_policies"]), (&1.into(), &0.into()), "{reading}");
    let policy = |name: &str| {
        let all = reading["policies"].as_array().expect("policies");
        all.iter().find(|policy| policy["policy"] == name).cloned().unwrap_or_else(|| panic!("{reading}"))
    };
    assert!(policy("login")["denied_per_second"].as_f64() > Some(1.0), "{reading}");
    assert!(policy("api")["allowed_per_second"].as_f64() > Some(1.0), "{reading}");
    let keys = reading["keys"].as_array().expect("keys");
    let [alice, carol] = &keys[..] else { panic!("{reading}") };
    assert_eq!((&alice["key"], &alice["remaining"]), (&"alice\u{1b}[31m".into(), &0.into()), "{reading}");
    assert!(alice["denied_per_second"].as_f64() > Some(1.0), "{reading}");
    assert_eq!((&carol["digest"], &carol["limit"]), (&digest.as_str().into(), &5.into()), "{reading}");
    assert_eq!((&carol["policies"][0], &carol["key"]), (&"login".into(), &Value::Null), "{reading}");

    limiter.clear("login", "carol").expect("a clear");
    let page = top(store, &scratch, true, &["--readings", "3"]);
    assert!(page.out.contains("alice\\u{1b}[31m ") && !page.out.contains('\u{1b}'), "{}", page.out);
    let last = page.out.rsplit("tidegate top").next().expect("a page");
    assert!(!last.contains(&digest[..8]), "carol is not at its limit any more\n{last}");
    drop(process);
    // In a cluster each server has a third of the keys; a reading looks at up to 1,000 of each, 100 at a time.
    let (mut scans, readings) = (0, 7);
    for server in 0..3 {
        let stats = servers.command(server, &["INFO", "commandstats"]).to_string();
        assert!(!stats.contains("cmdstat_keys:") && !stats.contains("cmdstat_monitor"), "{stats}");
        let of_scan = stats.split("cmdstat_scan:").nth(1).unwrap_or_else(|| panic!("{stats}"));
        let number = |name: &str| -> f64 {
            let text = of_scan.split(name).nth(1).expect(name);
            text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>().parse().expect(name)
        };
        assert!(number("calls=") <= f64::from(readings * 10), "{stats}");
        assert!(number("usec_per_call=") < 500.0, "a SCAN holds up the other clients of its server: {stats}");
        scans += number("calls=") as u64;
    }
    assert!(scans >= 3 * readings as u64, "{scans} calls of SCAN");
}

#[test]
fn names_alone_and_keys_alone() {
    let (servers, scratch) = (Servers::start(Kind::Single), Scratch::new("top-single"));
    let store = servers.url();
    let (_limiter, digest) = limited(store, "dave");
    let of_servers = top(store, &scratch, false, &["--interval", "100ms"]);
    assert!(of_servers.out.contains(&digest[..19]), "{}", of_servers.out);
    golden("top", &without_numbers(&of_servers.out.replace(&digest[..19], "DIGEST").replace(store, "STORE")));
    let scans = servers.command(0, &["INFO", "commandstats"]).to_string().matches("cmdstat_scan:").count();
    assert_eq!(scans, 1);

    let process = PublishingProcess::start(&names_folder(&scratch), "memory://");
    let names = scratch.file("names");
    let mut alone = command(&["top", "--names", &names, "--json", "--readings", "4", "--store", "memory://"]);
    let reading = last_reading(&ran(&mut alone));
    assert_eq!(reading["servers"], 0);
    assert_eq!(
        (&reading["keys"][0]["key"], &reading["keys"][0]["remaining"]),
        (&"alice\u{1b}[31m".into(), &Value::Null)
    );
    drop(process);
    // A process that has ended is not shown, and a file that is no such file is counted.
    std::fs::write(scratch.file("names/tidegate-1-1.json"), "{}").expect("a file");
    let mut after = command(&["top", "--names", &names, "--json", "--sample", "0", "--store", store]);
    let after = ran(&mut after).json();
    assert_eq!(
        (&after["keys"], &after["names"]["unreadable_files"]),
        (&Value::Array(Vec::new()), &1.into()),
        "{after}"
    );
}

#[test]
fn the_command_itself_is_no_service() {
    let (servers, scratch) = (Servers::start(Kind::Single), Scratch::new("top-command"));
    let (names, store) = (names_folder(&scratch), servers.url());
    let verbs: [&[&str]; 6] = [
        &["explain", "20/minute; 5/3s"],
        &["demo"],
        &["simulate", "5/s", "--pattern", "steady"],
        &["bench", "--seconds", "0.1"],
        &["check", "5/s", "k", "--store", store],
        &["doctor", "--store", store],
    ];
    for verb in verbs {
        ran(command(verb).env("TIDEGATE_TOP", &names));
        let published = std::fs::read_dir(&names).expect("a folder").count();
        assert_eq!(published, 0, "{verb:?} has published itself");
    }
}

#[test]
fn what_stands_in_the_way_is_said() {
    let (servers, scratch) = (Servers::start(Kind::Single), Scratch::new("top-wrong"));
    let nothing = ran(&mut command(&["top"]));
    assert_eq!(nothing.code, 2);
    assert!(nothing.error.contains("--store") && nothing.error.contains("TIDEGATE_TOP"), "{}", nothing.error);
    let no_folder = ran(&mut command(&["top", "--names", "/no/such/folder"]));
    assert_eq!(no_folder.code, 2);
    assert!(no_folder.error.contains("/no/such/folder"), "{}", no_folder.error);
    servers.command(0, &["ACL", "SETUSER", "app", "on", ">secret", "~tg*", "+@all", "-scan"]);
    let store = servers.url().replace("redis://", "redis://app:secret@");
    let refused = top(&store, &scratch, false, &["--interval", "100ms", "--json"]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.error.contains("+scan") && !refused.error.contains("secret"), "{}", refused.error);
    servers.command(0, &["ACL", "SETUSER", "app", "+scan", "-time"]);
    let (_limiter, _) = limited(servers.url(), "erin");
    let refused = top(&store, &scratch, false, &["--interval", "100ms", "--json"]);
    assert!(refused.error.contains("refuses TIME: NOPERM"), "{}", refused.error);
    servers.kill(0);
    let gone = top(servers.url(), &scratch, false, &["--interval", "100ms"]);
    assert_eq!(gone.code, 2, "{}", gone.out);
    assert!(!gone.error.is_empty());
}
