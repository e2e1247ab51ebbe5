//! The plots: well-formed, complete, and in the colours that the reader prefers.

use std::fs;
use std::path::Path;
use std::process::Command;

use tiny_skia::{Pixmap, PremultipliedColorU8};

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

/// Whether the text is XML; the tests have Python for their servers, and it has a parser.
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
    for plot in ["plot.svg", "page.html", "plot.png"] {
        let file = scratch.file(plot);
        done(&["--policies", &policies, "--trace", &trace, "--only-key", "k\u{1}", "--out", &file]);
        if let Ok(text) = fs::read_to_string(&file) {
            let is_wrong = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}');
            assert!(!text.contains(is_wrong), "{plot}");
        }
    }
    is_xml(&scratch.file("plot.svg"));
}

fn color(pixels: &Pixmap, x: u32, y: u32) -> (u8, u8, u8) {
    let color: PremultipliedColorU8 = pixels.pixel(x, y).expect("a pixel");
    (color.red(), color.green(), color.blue())
}

#[test]
fn png_has_text_and_areas() {
    let scratch = Scratch::new("png");
    for (theme, background) in [("light", (255, 255, 255)), ("dark", (22, 27, 34))] {
        let pixels = Pixmap::decode_png(&drawn(&scratch, "plot.png", &["--theme", theme])).expect("a PNG");
        assert_eq!((pixels.width(), pixels.height()), (2_000, 1_136));
        assert_eq!(color(&pixels, 2, 2), background);
        let marked = |left: u32, top: u32, width: u32, height: u32| {
            let places = (left..left + width).flat_map(|x| (top..top + height).map(move |y| (x, y)));
            places.filter(|(x, y)| color(&pixels, *x, *y) != background).count()
        };
        assert!(marked(48, 34, 700, 50) > 3_000, "the title");
        assert!(marked(150, 300, 1_800, 280) > 50_000, "the areas of the first panel");
        assert!(marked(150, 700, 1_800, 280) > 50_000, "the areas of the second panel");
    }
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

/// A browser, where one is installed.
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
    drawn(&scratch, "page.html", &[]);
    drawn(&scratch, "plot.svg", &[]);
    for (scheme, background) in [(1, (255, 255, 255)), (0, (22, 27, 34))] {
        for name in ["page.html", "plot.svg"] {
            let picture = scratch.file(&format!("{name}-{scheme}.png"));
            let page = format!("file://{}", scratch.file(name));
            let output = Command::new(browser)
                .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,800"])
                .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
                .arg(format!("--user-data-dir={}", scratch.file("profile")))
                .arg(format!("--screenshot={picture}"))
                .arg(page)
                .output()
                .expect("the browser runs");
            assert!(Path::new(&picture).exists(), "{}", String::from_utf8_lossy(&output.stderr));
            let pixels = Pixmap::decode_png(&fs::read(&picture).expect("a picture")).expect("a PNG");
            assert_eq!(color(&pixels, 20, 8), background, "{name}, scheme {scheme}");
        }
    }
}
