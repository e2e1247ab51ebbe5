//! The examples of `--help` work as printed.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::running::{Scratch, command, done, folder, ran};

#[test]
fn of_the_help_work() {
    let help = ran(command(&["--help"]).env("COLUMNS", "1000")).out;
    let examples: Vec<&str> = help.lines().filter_map(|line| line.trim().strip_prefix("$ ")).collect();
    assert!(examples.len() >= 6, "{help}");
    let scratch = Scratch::new("examples");
    let folder = scratch.file("");
    let log = "203.0.113.9 - alice [10/Oct/2026:13:55:30 +0000] \"GET / HTTP/1.1\" 200 2326\n";
    fs::write(scratch.file("access.log"), log).expect("a log");
    let line = "{\"ts\": 1700000000, \"http\": {\"client\": {\"ip\": \"10.0.0.7\"}}}\n";
    fs::write(scratch.file("calls.jsonl"), line).expect("a trace");
    fs::write(scratch.file("calls.csv"), "time,key\n2,a\n1,b\n").expect("a trace");
    let binary = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
    let path =
        env::var("PATH").map_or_else(|_| binary.display().to_string(), |path| format!("{}:{path}", binary.display()));
    for example in examples {
        let output = Command::new("sh").args(["-c", example]).current_dir(&folder).env("PATH", &path).output();
        let output = output.expect("a shell");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{example}: {error}");
        assert!(output.stdout.len() > 200, "{example}: {}", String::from_utf8_lossy(&output.stdout));
    }
    for name in ["plot.svg", "page.html", "decisions.csv"] {
        assert!(fs::metadata(scratch.file(name)).is_ok_and(|file| file.len() > 40), "no example has written {name}");
    }
}

#[test]
fn of_the_page_about_calls_that_go_out_shows_what_is_printed() {
    let page = fs::read_to_string(folder("../../docs/guides/outgoing.md")).expect("the page");
    let example = page.split("```text\n").find(|block| block.starts_with("$ tidegate simulate ")).expect("an example");
    let mut lines = example.lines().take_while(|line| *line != "```");
    let words = lines.next().expect("a command").split('"').enumerate();
    let arguments: Vec<&str> = words
        .flat_map(|(place, text)| if place % 2 == 1 { vec![text] } else { text.split_whitespace().collect() })
        .skip(3)
        .collect();
    let printed = done(&arguments).out;
    let shown: Vec<&str> = lines.collect();
    assert!(shown.len() > 10, "{example}");
    // The page leaves the last column out.
    assert_eq!(shown.len(), printed.trim_end().lines().count(), "{printed}");
    for (shown, printed) in shown.iter().zip(printed.lines()) {
        assert!(printed.starts_with(shown), "the page has {shown:?}, and printed is {printed:?}");
    }
}
