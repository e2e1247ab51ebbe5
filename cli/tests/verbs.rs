//! The output and exit code of every verb that needs no server, its behaviour in a shell, and the examples of all verbs.

mod support;

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tidegate_tests::servers::{Kind, Servers};

#[cfg(unix)]
use support::Ran;
use support::{Scratch, command, golden, ran, run, without_numbers};

const VERBS: [&str; 21] = [
    "explain",
    "lint",
    "check",
    "peek",
    "charge",
    "refund",
    "clear",
    "block",
    "unblock",
    "override",
    "overrides",
    "journal",
    "inspect",
    "doctor",
    "setup",
    "size",
    "top",
    "simulate",
    "bench",
    "demo",
    "completions",
];

#[test]
fn explain_two_limits() {
    let ran = run(&["explain", "20/minute; 5/3s"]);
    assert_eq!((ran.code, ran.error.as_str()), (0, ""));
    golden("explain", &ran.out);
    golden("explain.json", &run(&["explain", "20/minute; 5/3s", "--json"]).out);
}

#[test]
fn explain_every_algorithm() {
    let policies = [
        "fixed-window 100/minute",
        "calendar-window 1000/month",
        "calendar-window 1000/month from day 15 at 06:00 in Europe/Berlin",
        "sliding-log 100/minute",
        "sliding-counter 100/minute",
        "token-bucket 10/s burst 50",
        "gcra 10/s burst 50; 300/minute",
        "leaky-bucket 10/s burst 50",
        "concurrency 8 ttl 30s",
        "0/minute",
    ];
    let ran = run(&[&["explain"][..], &policies].concat());
    assert_eq!((ran.code, ran.error.as_str()), (0, ""));
    golden("explain-every-algorithm", &ran.out);
}

#[test]
fn large_numbers_keep_their_columns() {
    let ran = run(&["explain", "gcra 900000000000/s burst 1000000000000; 1000000000000 tokens/minute"]);
    let (_, greedy) = ran.out.split_once("A caller that takes all it can").expect("a part");
    let lines: Vec<&str> = greedy.lines().filter(|line| line.contains("held back by")).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("  held back by")), "{}", ran.out);
}

#[test]
fn explain_a_policy_of_a_file() {
    golden("explain-named", &run(&["explain", "reports", "login", "--policies", "tidegate.yaml"]).out);
}

#[test]
fn without_names_all_policies_of_a_file_are_meant() {
    let file = ["--policies", "tidegate.yaml"];
    let all = run(&[&["explain"][..], &file].concat());
    let names = ["login", "api", "reports", "exports"];
    assert_eq!((all.code, all.out), (0, run(&[&["explain"][..], &names, &file].concat()).out));
    let one = run(&[&["explain", "--json"][..], &file].concat());
    assert_eq!(one.json().as_array().map(Vec::len), Some(4));
    let simulated =
        run(&[&["simulate", "--pattern", "steady", "--calls", "1000", "--json"][..], &file].concat()).json();
    let found = simulated["policies"].as_array().expect("policies").iter().map(|policy| &policy["policy"]);
    assert_eq!(found.collect::<Vec<_>>(), names);
    let scratch = Scratch::new("no-policies");
    let empty = scratch.file("empty.yaml");
    std::fs::write(&empty, "policies: {}\n").expect("a file");
    for verb in [&["explain"][..], &["simulate", "--pattern", "steady"]] {
        let none = run(&[verb, &["--policies", &empty]].concat());
        assert_eq!((none.code, none.out.as_str()), (2, ""));
        assert!(none.error.contains("has no policies"), "{}", none.error);
    }
}

#[test]
fn lint_for_people_programs_and_github() {
    let clean = run(&["lint", "tidegate.yaml"]);
    assert_eq!((clean.code, clean.out.as_str()), (0, "tidegate.yaml: nothing found\n"));
    let odd = run(&["lint", "odd.yaml"]);
    assert_eq!(odd.code, 1);
    golden("lint", &odd.out);
    let wrong = run(&["lint", "wrong.yaml", "odd.yaml"]);
    assert_eq!(wrong.code, 2);
    golden("lint-invalid", &wrong.out);
    let json = run(&["lint", "wrong.yaml", "odd.yaml", "--json"]);
    assert_eq!(json.code, 2);
    golden("lint.json", &json.out);
    let github = run(&["lint", "wrong.yaml", "odd.yaml", "--format", "github"]);
    assert_eq!(github.code, 2);
    golden("lint-github", &github.out);
    let in_actions = ran(command(&["lint", "wrong.yaml", "odd.yaml"]).env("GITHUB_ACTIONS", "true"));
    assert_eq!(in_actions.out, github.out);
    let gone = run(&["lint", "gone.yaml", "--format", "github"]);
    assert_eq!(gone.code, 2);
    assert!(gone.out.starts_with("::error file=gone.yaml::"), "{}", gone.out);
    let gone = run(&["lint", "gone.yaml"]).out;
    assert!(gone.starts_with("gone.yaml: error: the policy file cannot be read"), "{gone}");
}

/// A pipe without a writer, and a file without an end.
#[cfg(unix)]
fn endless(scratch: &Scratch, ending: &str) -> [String; 2] {
    let (pipe, link) = (scratch.file(&format!("pipe{ending}")), scratch.file(&format!("link{ending}")));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    std::os::unix::fs::symlink("/dev/zero", &link).expect("a link");
    [pipe, link]
}

/// The output of a command that must end by itself.
#[cfg(unix)]
#[track_caller]
fn ended(mut command: std::process::Command) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let began = Instant::now();
    while child.try_wait().expect("its state").is_none() && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let hung = child.try_wait().expect("its state").is_none();
    let _ = child.kill();
    let output = child.wait_with_output().expect("what it wrote");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert!(!hung, "{command:?} hangs: {out}{error}");
    Ran { code: output.status.code().expect("a code"), out, error }
}

#[cfg(unix)]
#[test]
fn lint_reads_regular_files_alone() {
    let scratch = Scratch::new("lint");
    for file in endless(&scratch, ".yaml") {
        let ran = ended(command(&["lint", &file]));
        assert_eq!(ran.code, 2, "{file}: {}", ran.out);
        assert!(ran.out.contains("error: the policy file is not a regular file"), "{}", ran.out);
    }
}

#[cfg(unix)]
#[test]
fn the_file_of_a_secret_is_regular_and_holds_nothing_else() {
    let scratch = Scratch::new("secret");
    let [pipe, link] = endless(&scratch, "");
    let (long, right, short) = (scratch.file("long"), scratch.file("right"), scratch.file("short"));
    std::fs::write(&long, "hunter2-".repeat(1 << 14)).expect("a file");
    std::fs::write(&right, "hunter2-hunter2-hunter2\n").expect("a file");
    std::fs::write(&short, "hunter2\n").expect("a file");
    let wrong = [
        (pipe.as_str(), "is not a regular file"),
        (&link, "is not a regular file"),
        ("/", "is not a regular file"),
        (&long, "is larger than 64 KiB"),
        (&short, "has 7 bytes"),
        // The secret itself in the place of its file.
        ("hunter2-hunter2-hunter2", "cannot be read"),
    ];
    for (file, said) in wrong {
        for given in [true, false] {
            let mut run = command(&["check", "5/minute", "k", "--json"]);
            match given {
                true => run.args(["--key-secret-file", file]),
                false => run.env("TIDEGATE_KEY_SECRET_FILE", file),
            };
            let ran = ended(run);
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{file}: {}", ran.error);
            assert!(ran.error.contains(said) && ran.error.contains("config_invalid"), "{file}: {}", ran.error);
            assert!(!ran.error.contains("hunter2"), "{}", ran.error);
        }
    }
    assert_eq!(run(&["check", "5/minute", "k", "--key-secret-file", &right]).code, 0);
}

#[cfg(unix)]
#[test]
fn the_files_that_a_store_url_names_are_regular_and_small() {
    let scratch = Scratch::new("certificates");
    let ([pipe, link], own) = (endless(&scratch, ".pem"), scratch.file("own.pem"));
    std::fs::write(&own, "a certificate").expect("a file");
    for file in [pipe, link] {
        for option in ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "password_file"] {
            let more = match option {
                "ssl_certfile" => format!("&ssl_keyfile={own}"),
                "ssl_keyfile" => format!("&ssl_certfile={own}"),
                _ => String::new(),
            };
            let url = format!("rediss://127.0.0.1:1/0?{option}={file}{more}");
            let ran = ended(command(&["check", "5/minute", "k", "--store", &url]));
            assert_eq!(ran.code, 2, "{url}: {}", ran.error);
            let said = format!("the file that {option} names is not a regular file");
            assert!(ran.error.contains(&said), "{url}: {}", ran.error);
        }
    }
}

#[test]
fn check_answers_with_its_exit_code() {
    let allowed = run(&["check", "fixed-window 5/minute", "alice"]);
    assert_eq!(allowed.code, 0);
    golden("check", &allowed.out);
    assert!(allowed.error.contains("memory:// is empty whenever the command starts"), "{}", allowed.error);
    let denied = run(&["check", "fixed-window 5/minute", "alice", "--cost", "6"]);
    assert_eq!(denied.code, 1);
    golden("check-denied", &denied.out);
    let partial = run(&["check", "fixed-window 5/minute", "alice", "--cost", "6", "--partial", "--json"]);
    assert_eq!((partial.code, &partial.json()["granted"]), (0, &5.into()));
    let peek = run(&["peek", "0/minute", "alice", "--json"]);
    assert_eq!((peek.code, peek.json()["retry_after"].is_null()), (1, true));
    // The output shows a moment after the charge. With a limit per hour, this moment is not visible.
    let charge = run(&["charge", "fixed-window 5/hour", "alice", "7"]);
    assert_eq!(charge.code, 0);
    golden("charge", &charge.out);
    assert_eq!(run(&["check", "5/minute", "alice", "--cost", "0"]).code, 2);
    let shadow = run(&["check", "5/minute", "alice", "--json", "--partial", "--cost", "2"]);
    assert_eq!(shadow.json()["granted"], 2);
}

#[test]
fn verbs_that_need_usage_refuse_an_empty_memory() {
    let verbs: [&[&str]; 8] = [
        &["refund", "5/minute", "k"],
        &["clear", "5/minute", "k"],
        &["block", "5/minute", "k", "10m"],
        &["unblock", "5/minute", "k"],
        &["journal", "login", "k", "--policies", "tidegate.yaml"],
        &["inspect", "5/minute", "k"],
        &["doctor"],
        &["doctor", "--store", "memory://"],
    ];
    for verb in verbs {
        let ran = run(verb);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{verb:?}");
        assert!(ran.error.contains("--store redis://"), "{verb:?}: {}", ran.error);
    }
}

#[test]
fn an_empty_environment_variable_is_as_good_as_none() {
    let check = ran(command(&["check", "5/minute", "k"]).env("TIDEGATE_STORE", ""));
    assert_eq!(check.code, 0, "{}", check.error);
    let top = ran(command(&["top"]).env("TIDEGATE_STORE", "").env("TIDEGATE_TOP", ""));
    assert!(top.error.contains("there is nothing to watch"), "{}", top.error);
    assert_eq!(run(&["check", "5/minute", "k", "--store", ""]).code, 2, "an option is meant");
}

#[test]
fn errors_have_a_code_and_advice_and_no_secret() {
    let wrong: [(&[&str], &str, &str); 6] = [
        (&["check", "lgoin", "k", "--policies", "tidegate.yaml"], "policy_unknown", "did you mean `login`?"),
        (&["check", "login", "k"], "policy_unknown", "--policies"),
        (&["check", "20/minuet", "k"], "policy_invalid", "minute"),
        (&["check", "5/m", "k", "--store", "redis://u:hunter2@127.0.0.1:1"], "store_unavailable", "127.0.0.1:1"),
        (&["check", "5/m", "k", "--store", "redis://u:hunter2@h?no=1"], "config_invalid", "no such option"),
        (&["doctor", "--store", "ftp://u:hunter2@h"], "config_invalid", "redis://"),
    ];
    for (arguments, code, said) in wrong {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.error.contains(said) && ran.error.contains(code), "{arguments:?}: {}", ran.error);
        assert!(!format!("{}{}", ran.out, ran.error).contains("hunter2"), "{}", ran.error);
        let json = run(&[arguments, &["--json"]].concat());
        let error: serde_json::Value = serde_json::from_str(&json.error).expect("one line of JSON");
        assert_eq!((json.code, &error["error"]["code"]), (2, &code.into()), "{arguments:?}");
    }
    // A store in a wrong place, and one in the environment.
    let misplaced: [&[&str]; 15] = [
        &["redis://u:hunter2@h"],
        &["redis:u:hunter2@h"],
        &["check", "--stor=redis://u:hunter2@h"],
        &["check", "--help"],
        &["lint", "redis://u:hunter2@h"],
        &["lint", "redis://u:hunter2@h.yaml", "--json"],
        &["lint", "redis://u:hunter2@h", "--format=github"],
        &["explain", "redis://u:hunter2@h"],
        &["explain", "5/s", "--policies", "redis://u:hunter2@h"],
        &["simulate", "5/s", "--trace", "redis://u:hunter2@h"],
        &["simulate", "5/s", "--pattern", "steady", "--out", "redis://u:hunter2@h"],
        &["top", "--names", "redis://u:hunter2@h"],
        &["doctor", "--store", "hunter2://h"],
        &["doctor", "hunter2://h"],
        &["check", "5/s", "k", "--store=redis+hunter2://u:hunter2@h", "--json"],
    ];
    for arguments in misplaced {
        let ran = ran(command(arguments).env("TIDEGATE_STORE", "redis://u:hunter2@h"));
        assert!(!format!("{}{}", ran.out, ran.error).contains("hunter2"), "{}{}", ran.out, ran.error);
    }
}

#[test]
fn the_demonstration() {
    let shown = run(&["demo"]);
    assert_eq!((shown.code, shown.error.as_str()), (0, ""));
    // The number of lines about waiting depends on the machine.
    let (waits, rest): (Vec<&str>, Vec<&str>) = shown.out.lines().partition(|line| line.contains("waiting"));
    assert!(waits.last().is_some_and(|last| last.contains("0.00 s left")), "{waits:?}");
    golden("demo", &without_numbers(&rest.join("\n")));
    assert!(shown.out.matches("refused").count() >= 4, "{}", shown.out);
}

#[test]
fn bench_and_size() {
    let arguments = ["bench", "--seconds", "0.2", "--concurrency", "2", "--keys", "10"];
    let shown = run(&arguments);
    assert_eq!((shown.code, shown.error.as_str()), (0, ""));
    golden("bench", &without_numbers(&shown.out));
    let json = run(&[&arguments[..], &["--json"]].concat()).json();
    assert!(json["checks_per_second"].as_f64() > Some(1_000.0), "{json}");
    let size = run(&["size", "--rate", "1M/s", "--keys", "50M", "gcra 100/s burst 200"]);
    assert_eq!((size.code, size.error.as_str()), (0, ""));
    golden("size", &size.out);
    golden("size.json", &run(&["size", "--rate", "1M/s", "--keys", "50M", "20/minute; 5/3s", "--json"]).out);
    for wrong in [&["--rate", "fast", "--keys", "1"][..], &["--rate", "1", "--keys", "none"]] {
        assert_eq!(run(&[&["size", "5/s"][..], wrong].concat()).code, 2);
    }
    let many = run(&["bench", "--seconds", "0.1", "--keys", "1000001"]);
    assert_eq!(many.code, 2, "more keys than are used");
    assert!(many.error.contains("1000000"), "{}", many.error);
}

#[test]
fn completions_of_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = run(&["completions", shell]);
        assert_eq!(ran.code, 0, "{shell}: {}", ran.error);
        for verb in ["explain", "doctor", "unblock"] {
            assert!(ran.out.contains(verb), "{shell} does not complete {verb}");
        }
    }
    assert_eq!(run(&["completions", "bash", "--json"]).json()["shell"], "bash");
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let has_colours = |arguments: &[&str]| run(arguments).out.contains('\u{1b}');
    assert!(!has_colours(&["explain", "5/s"]));
    assert!(has_colours(&["explain", "5/s", "--color=always"]));
    assert!(has_colours(&["--color", "always", "explain", "5/s"]));
    assert!(!has_colours(&["explain", "5/s", "--color=never"]));
    let forced = ran(command(&["explain", "5/s", "--color=always"]).env("NO_COLOR", "1"));
    assert!(forced.out.contains('\u{1b}'), "an argument is stronger than the environment");
    assert_eq!(run(&["explain", "5/s", "--color=sometimes"]).code, 2);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command(&["explain", "5/s", "6/s", "7/s", "8/s", "9/s", "20/minute", "--color=always"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    let mut error = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
    assert_eq!((status.code(), error.as_str()), (Some(0), ""));
}

#[test]
#[cfg(target_os = "linux")]
fn an_output_that_cannot_be_written_is_an_error() {
    for arguments in [&["explain", "5/s"][..], &["explain", "5/s", "--json"], &["completions", "bash"], &["--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let mut child = command(arguments).stdout(full).stderr(Stdio::piped()).spawn().expect("the command runs");
        let mut error = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
        assert_eq!(child.wait().expect("it ends").code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("standard output cannot be written"), "{arguments:?}: {error}");
    }
}

#[test]
fn help_of_every_verb() {
    let all = run(&["--help"]);
    assert_eq!(all.code, 0);
    golden("help", &all.out);
    assert_eq!(run(&[]).code, 2, "without a verb");
    for verb in VERBS {
        let help = run(&[verb, "--help"]);
        assert_eq!(help.code, 0);
        golden(&format!("help-{verb}"), &help.out);
        assert!(help.out.contains("  $ tidegate "), "{verb} has no example");
        // A wrapped example cannot be copied.
        let verb = format!("  $ tidegate {verb}");
        assert!(help.out.lines().all(|line| !line.contains("$ tidegate") || line.starts_with(&verb)), "{}", help.out);
    }
    assert!(run(&["--version"]).out.starts_with("tidegate "));
}

#[test]
fn setup_makes_the_table_of_a_store() {
    let server = Servers::start(Kind::Postgres);
    let printed = run(&["setup", server.url(), "--print"]);
    assert!(printed.code == 0 && printed.out.starts_with("CREATE TABLE IF NOT EXISTS \"tidegate\""), "{}", printed.out);
    assert_ne!(run(&["check", "5/minute", "alice", "--store", server.url()]).code, 0, "there is no table yet");
    for _ in 0..2 {
        let made = run(&["setup", server.url()]);
        assert!(
            made.code == 0 && made.out.starts_with("the table \"tidegate\" is ready in postgresql://"),
            "{}",
            made.out
        );
    }
    assert_eq!(run(&["check", "5/minute", "alice", "--store", server.url()]).code, 0);
    assert_eq!(run(&["setup", "redis://localhost"]).code, 2);
}

#[test]
fn the_examples_of_the_help_run() {
    let redis = Servers::start(Kind::Single);
    let mut count = 0;
    // The examples of simulate need traces, which `simulate/examples.rs` has, and those of setup another server.
    for verb in VERBS.into_iter().filter(|verb| !["simulate", "setup"].contains(verb)) {
        let help = run(&[verb, "--help"]).out;
        for example in help.lines().filter_map(|line| line.trim().strip_prefix("$ tidegate ")) {
            let example = example.split(" > ").next().expect("a command");
            let arguments = words(&example.replace("redis://localhost:6379", redis.url()));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = run(&arguments);
            // A denial and a warning are answers.
            assert!(ran.code < 2, "tidegate {example}: {}", ran.error);
            count += 1;
        }
    }
    assert!(count > 25, "{count} examples");
}

/// The words of a command line with double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn units_stand_beside_numbers_and_classes_in_numbers() {
    let explained = run(&["explain", "llm", "pages", "calls", "--policies", "units.yaml"]);
    assert_eq!((explained.code, explained.error.as_str()), (0, ""));
    golden("explain-units", &explained.out);
    let json = run(&["explain", "llm", "--policies", "units.yaml", "--json"]).json();
    // 30 % of 500, of 100,000 and of 8, rounded up. Then 60 %.
    let class = |name: &str, part: &str, free: [u64; 3], takes: [u64; 3]| serde_json::json!({"class": name, "part": part, "free": free, "takes": takes});
    assert_eq!(
        json["classes"],
        serde_json::json!([
            class("batch", "30%", [150, 30_000, 3], [350, 70_000, 5]),
            class("background", "60%", [300, 60_000, 5], [200, 40_000, 3]),
        ])
    );
    golden("check-units", &run(&["check", "two", "k", "--cost", "tokens=1200", "--policies", "units.yaml"]).out);
    let denied = run(&["check", "two", "k", "--cost", "tokens=100001,cost=2", "--policies", "units.yaml"]);
    golden("check-units-denied", &denied.out);
    golden("charge-units", &run(&["charge", "two", "k", "tokens=100700", "--policies", "units.yaml"]).out);
    let lint = run(&["lint", "10 tokens/10s; 600 tokens/600s; token-bucket 10 pages/s burst 5"]);
    assert!(lint.out.contains("never lets more than 600 tokens pass"), "{}", lint.out);
    assert!(lint.out.contains("at most 5 pages pass at once"), "{}", lint.out);
}
