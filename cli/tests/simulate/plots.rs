//! The plots: well-formed, complete, and in the colours that the reader prefers.

use std::fs;
use std::process::Command;

use crate::running::{Scratch, done};

const POLICIES: [&str; 2] = ["fixed-window 20/minute", "leaky-bucket 20/minute"];

#[track_caller]
fn drawn(scratch: &Scratch, name: &str, more: &[&str]) -> Vec<u8> {
    let file = scratch.file(name);
    let mut arguments = POLICIES.to_vec();
    arguments.extend(["--pattern", "boundary", "--out", &file]);
    arguments.extend(more);
    done(&arguments);
    fs::read(&file).expect("a plot")
}

/// Asserts that the file is XML. The tests need Python for their servers anyway, and it has a parser.
#[track_caller]
fn is_xml(path: &str) {
    let program = "import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])";
    let output = Command::new("python3").args(["-c", program, path]).output().expect("python3");
    assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn svg_has_every_panel() {
    let scratch = Scratch::new("svg");
    let svg = String::from_utf8(drawn(&scratch, "plot.svg", &[])).expect("UTF-8");
    is_xml(&scratch.file("plot.svg"));
    let texts = [
        "<title>Boundary attack: 1,590 calls in 4 min</title>",
        "fixed-window 20/minute",
        "leaky-bucket 20/minute",
        "worst for one key: 39 in any minute, limit 20",
        "10 keys were refused by their own limits",
        "the limit, for all keys together",
        "going on after the delay",
        "time since the start",
        "prefers-color-scheme: dark",
    ];
    for text in texts {
        assert!(svg.contains(text), "{text}");
    }
    // An area has a shape and its upper edge: two of them in each of two panels.
    assert_eq!(svg.matches("<polygon").count(), 4);
    assert!(svg.len() < 300_000, "{} bytes", svg.len());
    let dark = String::from_utf8(drawn(&scratch, "dark.svg", &["--theme", "dark"])).expect("UTF-8");
    assert!(!dark.contains("prefers-color-scheme") && dark.contains("fill=\"#161B22\""));
}

#[test]
fn every_limit_of_a_policy_is_named() {
    let scratch = Scratch::new("limits");
    let file = scratch.file("plot.svg");
    done(&["fixed-window 20/minute; fixed-window 5/3s", "--pattern", "boundary", "--out", &file]);
    let svg = fs::read_to_string(&file).expect("a plot");
    for text in ["in any minute, limit 20", "in any 3 s, limit 5"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn names_are_escaped() {
    let scratch = Scratch::new("escaped");
    let trace = scratch.file("<a & 'b'>.csv");
    fs::write(&trace, "1,k\n2,k\n").expect("a trace");
    for name in ["plot.svg", "page.html"] {
        let file = scratch.file(name);
        done(&["5/s", "--trace", &trace, "--out", &file]);
        let text = fs::read_to_string(&file).expect("a plot");
        assert!(!text.contains("<a &") && text.contains("&lt;a &amp;"), "{name}");
    }
    is_xml(&scratch.file("plot.svg"));
}

#[test]
fn a_plot_has_no_control_characters() {
    let scratch = Scratch::new("control");
    let trace = scratch.file("a\u{1b}[31m\u{8}\u{fffe}\u{ffff}b.csv");
    fs::write(&trace, "1,k\u{1}\n2,k\n").expect("a trace");
    let policies = scratch.file("policies.json");
    let name = "p\u{1}\u{c}\n\u{fffe}";
    fs::write(&policies, serde_json::json!({"policies": {name: "5/s"}}).to_string()).expect("a file");
    for plot in ["plot.svg", "page.html"] {
        let file = scratch.file(plot);
        done(&["--policies", &policies, "--trace", &trace, "--only-key", "k\u{1}", "--out", &file]);
        let text = fs::read_to_string(&file).expect("a plot");
        let is_wrong = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}');
        assert!(!text.contains(is_wrong), "{plot}");
    }
    is_xml(&scratch.file("plot.svg"));
}

#[test]
fn html_is_one_page_without_network() {
    let scratch = Scratch::new("html");
    let page = String::from_utf8(drawn(&scratch, "page.html", &[])).expect("UTF-8");
    let texts = [
        "<title>Boundary attack: 1,590 calls in 4 min</title>",
        "<svg ",
        "<table>",
        "39 of 20/minute (195 %)",
        "tidegate simulate &#39;fixed-window 20/minute&#39; &#39;leaky-bucket 20/minute&#39; --pattern boundary",
        "prefers-color-scheme: dark",
    ];
    for text in texts {
        assert!(page.contains(text), "{text}");
    }
    // The only address is the name of SVG's elements.
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    for loading in ["src=", "href=", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(loading), "{loading}");
    }
}

/// A browser, if one is installed.
fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

#[test]
fn a_browser_shows_the_page_light_and_dark() {
    let Some(browser) = browser() else {
        println!("skipped: there is no browser; apt-get install chromium");
        return;
    };
    let scratch = Scratch::new("browser");
    // An added script writes the background into the page, and the browser prints the page.
    for (name, end, color) in [
        ("page.html", "</body>", "document.body).backgroundColor"),
        ("plot.svg", "</svg>", "document.querySelector('rect')).fill"),
    ] {
        let plot = String::from_utf8(drawn(&scratch, name, &[])).expect("UTF-8");
        let (before, after) = plot.rsplit_once(end).expect("an end");
        let script = format!("<script>document.documentElement.id = getComputedStyle({color}</script>");
        fs::write(scratch.file(name), [before, &script, end, after].concat()).expect("a file");
        for (scheme, background) in [(1, "rgb(255, 255, 255)"), (0, "rgb(22, 27, 34)")] {
            let output = Command::new(browser)
                .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
                .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
                .arg(format!("--user-data-dir={}", scratch.file("profile")))
                .arg(format!("file://{}", scratch.file(name)))
                .output()
                .expect("the browser runs");
            let dom = String::from_utf8_lossy(&output.stdout);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(dom.contains(&format!("id=\"{background}\"")), "{name}, scheme {scheme}: {error}");
        }
    }
}
