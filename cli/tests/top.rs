//! `top` on real servers under load: its output, and its low cost for the servers.

mod support;

use std::env;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tidegate::{Limiter, Policy, host};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::wait::{SetOnDrop, wait_until};

use support::{Scratch, command, golden, ran, without_numbers};

const POLICIES: &str =
    "policies: {login: fixed-window 5/hour, api: gcra 1000/hour, trial: {limits: fixed-window 3/day, shadow: true}}\n";

/// A process that publishes its denials, until it is dropped.
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

/// Runs in a separate process, because the environment there makes its limiter publish.
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
            limiter.check("trial", "frank").expect("a decision");
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

/// Brings a key to its limit. Returns its limiter and its digest, because no process publishes the name of this key.
fn limited(store: &str, key: &str) -> (Limiter, String) {
    let limiter = limiter(store);
    while limiter.check("login", key).expect("a decision").allowed() {}
    let digest = host::redis_key(&"tg".into(), &login(), key)[2..].iter().map(|byte| format!("{byte:02x}")).collect();
    (limiter, digest)
}

fn names_folder(scratch: &Scratch) -> String {
    let folder = scratch.file("names");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[cfg(unix)]
#[test]
fn a_file_under_load() {
    let (shared, scratch) = (SharedFile::new(), Scratch::new("top-file"));
    let store = shared.url("max_bytes=1MB");
    let process = PublishingProcess::start(&names_folder(&scratch), &store);
    let (limiter, _) = limited(&store, "carol");
    // A key of another prefix is no key of this page.
    let other =
        Limiter::builder().store(&store).timeout(Duration::from_secs(10)).prefix("other").build().expect("a limiter");
    while other.check("fixed-window 5/hour", "mallory").expect("a decision").allowed() {}
    let keys = || last_reading(&top(&store, &scratch, true, &["--readings", "2", "--json"]));
    wait_until(Duration::from_secs(60), "the process has used many keys", || keys()["of_prefix"].as_u64() > Some(150));
    let reading = last_reading(&top(&store, &scratch, true, &["--readings", "4", "--json"]));
    assert_eq!((&reading["servers"], &reading["failures"]), (&1.into(), &Value::Array(Vec::new())), "{reading}");
    let (seen, of_prefix) = (reading["looked_at"].as_u64().expect("a number"), reading["of_prefix"].as_u64());
    assert!(of_prefix == Some(seen - 1), "{reading}");
    let keys = reading["keys"].as_array().expect("keys");
    let [alice, carol] = &keys[..] else { panic!("{reading}") };
    assert_eq!((&alice["key"], &alice["remaining"]), (&"alice\u{1b}[31m".into(), &0.into()), "{reading}");
    assert_eq!((&carol["key"], &carol["limit"], &carol["policies"][0]), (&Value::Null, &5.into(), &"login".into()));
    let page = top(&store, &scratch, true, &[]);
    assert!(page.out.contains("\nfile     "), "{}", page.out);

    limiter.clear("login", "carol").expect("a clear");
    let reading = last_reading(&top(&store, &scratch, true, &["--readings", "3", "--json"]));
    assert_eq!(reading["keys"].as_array().map(Vec::len), Some(1), "{reading}");
    drop(process);
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
    // Limiters publish once a second, so the last of four readings has two versions of their files.
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
    // In a cluster each server has a third of the keys. A reading looks at up to 1,000 of each, 100 at a time.
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
    let (limiter, digest) = limited(store, "dave");
    let of_servers = top(store, &scratch, false, &["--interval", "100ms"]);
    assert!(of_servers.out.contains(&digest[..19]), "{}", of_servers.out);
    golden("top", &without_numbers(&of_servers.out.replace(&digest[..19], "DIGEST").replace(store, "STORE")));
    let scans = servers.command(0, &["INFO", "commandstats"]).to_string().matches("cmdstat_scan:").count();
    assert_eq!(scans, 1);

    // A key with raised numbers is not at its limit.
    let more = tidegate::KeyOverride::parse("fixed-window 50/hour").expect("limits");
    limiter.set_override("login", "dave", Some(&more), None).expect("an override");
    let raised = last_reading(&top(store, &scratch, false, &["--readings", "2", "--json"]));
    assert_eq!((&raised["keys"], &raised["of_unknown_policies"]), (&Value::Array(Vec::new()), &0.into()), "{raised}");

    let process = PublishingProcess::start(&names_folder(&scratch), "memory://");
    let names = scratch.file("names");
    let mut alone = command(&["top", "--names", &names, "--json", "--readings", "4", "--store", "memory://"]);
    let reading = last_reading(&ran(&mut alone));
    assert_eq!(reading["servers"], 0);
    assert_eq!(
        (&reading["keys"][0]["key"], &reading["keys"][0]["remaining"]),
        (&"alice\u{1b}[31m".into(), &Value::Null)
    );
    // A call that a shadow policy would have denied was allowed.
    assert_eq!(reading["keys"].as_array().map(Vec::len), Some(1), "{reading}");
    let rates = |policy: &str| {
        let all = reading["policies"].as_array().expect("policies");
        let of_policy = all.iter().find(|one| one["policy"] == policy).unwrap_or_else(|| panic!("{reading}"));
        ["allowed_per_second", "denied_per_second", "shadow_denied_per_second"]
            .map(|name| of_policy[name].as_f64() > Some(0.0))
    };
    assert_eq!([rates("trial"), rates("login")], [[true, false, true], [false, true, false]], "{reading}");
    drop(process);
    // A process that has ended is not shown. A file with other contents is counted.
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

/// Runs a command in a terminal with this number of rows and columns, and writes its screen.
#[cfg(unix)]
const TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
child, screen = pty.fork()
if child == 0:
    size = struct.pack('HHHH', int(sys.argv[1]), int(sys.argv[2]), 0, 0)
    fcntl.ioctl(1, termios.TIOCSWINSZ, size)
    os.execv(sys.argv[3], sys.argv[3:])
shown = b''
while True:
    try:
        part = os.read(screen, 65536)
    except OSError:
        break
    if not part:
        break
    shown += part
os.waitpid(child, 0)
sys.stdout.buffer.write(shown)
";

/// Rewrites a file as forty policies and sixty denied keys would publish it, until it is stopped.
#[cfg(unix)]
fn publish_much(file: &str, stop: &AtomicBool) {
    let began = SystemTime::now();
    while !stop.load(Ordering::Relaxed) {
        let now = SystemTime::now();
        let calls = now.duration_since(began).unwrap_or_default().as_millis() as u64;
        let policy = |number: u64| {
            let name = format!("a policy whose name is long enough to fill its column {number}");
            (name, json!({"allowed": calls, "denied": 0, "shadow_denied": 0}))
        };
        let mut policies: serde_json::Map<_, _> = (1..40).map(policy).collect();
        policies.insert("trial".to_owned(), json!({"allowed": 9 * calls, "denied": 0, "shadow_denied": 3 * calls}));
        let key = |number: u64| json!({"policy": "trial", "key": format!("a key whose name is long too {number}"), "denials": calls});
        let published = json!({
            "version": 1, "written": now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            "program": "service", "store": "memory://", "prefix": "tg",
            "policies": policies, "denied": (0..60).map(key).collect::<Vec<_>>(),
        });
        std::fs::write(format!("{file}.new"), published.to_string()).expect("a file");
        std::fs::rename(format!("{file}.new"), file).expect("it is in its place");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(unix)]
#[test]
fn a_page_fits_the_screen_with_its_head() {
    let scratch = Scratch::new("top-screen");
    let names = names_folder(&scratch);
    let file = format!("{names}/tidegate-1-1.json");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = SetOnDrop(&stop);
        scope.spawn(|| publish_much(&file, &stop));
        wait_until(Duration::from_secs(30), "something is published", || std::path::Path::new(&file).exists());
        for (rows, columns, colours) in [(24, 80, "always"), (24, 80, "never"), (12, 60, "always")] {
            let mut terminal = Command::new("python3");
            let (rows_text, columns_text) = (rows.to_string(), columns.to_string());
            terminal.args(["-c", TERMINAL, &rows_text, &columns_text, env!("CARGO_BIN_EXE_tidegate"), "top"]);
            terminal.args([
                "--names",
                &names,
                "--store",
                "memory://",
                "--rows",
                "100",
                "--readings",
                "2",
                "--color",
                colours,
            ]);
            let shown = ran(terminal.env_remove("TIDEGATE_TOP").env("TERM", "xterm")).out;
            let pages: Vec<&str> = shown.split("\u{1b}[H\u{1b}[2J").skip(1).collect();
            assert_eq!(pages.len(), 2, "{shown:?}");
            for page in &pages {
                let lines: Vec<String> = page.split('\n').map(visible).collect();
                assert!(lines.len() <= rows, "{} lines on {rows} rows\n{page}", lines.len());
                assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns} columns\n{page}");
                assert!(lines[0].starts_with("tidegate top  "), "{page}");
                let begins = |text: &str| lines.iter().any(|line| line.starts_with(text));
                assert!(begins("policy  ") && begins("key at its limit  ") && begins("and "), "{page}");
                let heads: Vec<&str> =
                    lines.iter().find(|line| line.starts_with("policy ")).expect("a head").split_whitespace().collect();
                assert_eq!(heads[..3], ["policy", "allowed/s", "denied/s"], "{page}");
                if columns == 80 {
                    assert_eq!(heads[3..], ["in", "shadow/s"], "{page}");
                    let trial = lines.iter().find(|line| line.starts_with("trial ")).expect("its line");
                    let rates: Vec<f64> =
                        trial.split_whitespace().skip(1).map(|rate| rate.parse().expect("a rate")).collect();
                    assert!(matches!(rates[..], [allowed, 0.0, shadow] if allowed > shadow && shadow > 0.0), "{trial}");
                }
            }
        }
    });
}

/// A line without its colours.
#[cfg(unix)]
fn visible(line: &str) -> String {
    let mut parts = line.trim_end_matches('\r').split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| line + part.split_once('m').map_or("", |(_, text)| text))
}
