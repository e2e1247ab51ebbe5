//! One page of HTML with the drawing, the table, and the command that made it. It loads nothing.

use super::{Theme, drawing};
use crate::report::Report;
use crate::table::{self, COLUMNS};

const STYLE: &str = "
:root { color-scheme: SCHEME; LIGHT; --code: #f3f5f7 }
DARK
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1080px; padding: 2rem 1.25rem; background: var(--background); color: var(--text);
  font: 16px/1.5 Inter, system-ui, sans-serif }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25 }
h2 { margin: 2.25rem 0 .5rem; font-size: 1.15rem }
p { margin: .25rem 0 }
.muted { color: var(--muted) }
figure { margin: 1.5rem 0 0; overflow-x: auto }
figure svg { display: block; max-width: 100%; height: auto }
.table { overflow-x: auto; margin-bottom: .75rem }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }
th { color: var(--muted); font-weight: 600 }
td div { white-space: nowrap }
code { font: .9em/1.5 ui-monospace, monospace; background: var(--code); padding: .15em .35em; border-radius: 4px }
pre { background: var(--code); padding: .75rem 1rem; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere }
pre code { background: none; padding: 0 }
";

/// Escapes a text for HTML and SVG. They have no control characters.
pub(crate) fn escaped(text: &str) -> String {
    let codes = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    let text = tidegate::host::visible(text).into_owned();
    codes.iter().fold(text, |text, (letter, code)| text.replace(*letter, code))
}

/// The page.
pub(crate) fn page(report: &Report, svg: &str, theme: Theme) -> String {
    let title = escaped(&table::title(report));
    let dark = format!("{}; --code: #21262d", variables(drawing::DARK));
    let (scheme, dark) = match theme {
        Theme::Auto => ("light dark", format!("@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}")),
        Theme::Light => ("light", String::new()),
        Theme::Dark => ("dark", format!(":root {{ {dark} }}")),
    };
    let style = STYLE.replace("SCHEME", scheme).replace("LIGHT", &variables(drawing::LIGHT)).replace("DARK", &dark);
    let notes: String = report.notes.iter().map(|note| format!("<p>Note: {}</p>\n", escaped(note))).collect();
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class=\"muted\">{}</p>
</header>
<figure>
{svg}</figure>
<h2>Figures</h2>
<div class=\"table\">
{}</div>
<p class=\"muted\">The longest wait is from a key's first refusal to its next admission. The worst count is the most units of
one key in any window of the limit's period. The fairness is Jain's index of the shares of their calls that keys had
admitted: 1 when all are equal.</p>
{notes}<h2>How it was made</h2>
<pre><code>{}</code></pre>
<p class=\"muted\">tidegate {}: every call was decided by the limiter itself, at the time of the traffic.</p>
</body>
</html>
",
        escaped(&table::description(report)),
        rows(report),
        escaped(&report.command),
        env!("CARGO_PKG_VERSION"),
    )
}

/// The first colours of a palette, as variables of the style.
fn variables([background, text, muted, line, ..]: [u32; 7]) -> String {
    format!("--background: #{background:06x}; --text: #{text:06x}; --muted: #{muted:06x}; --line: #{line:06x}")
}

fn rows(report: &Report) -> String {
    let header: String = std::iter::once("policy").chain(COLUMNS).map(|column| format!("<th>{column}</th>")).collect();
    let mut html = format!("<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n");
    for policy in &report.policies {
        let (name, notation) = policy.names();
        html += &format!("<tr><td><code>{}</code>", escaped(&name));
        html += &notation.map_or_else(String::new, |text| format!("<div class=\"muted\">{}</div>", escaped(&text)));
        html += "</td>";
        for cell in table::cells(policy) {
            let lines: String = cell.iter().map(|line| format!("<div>{}</div>", escaped(line))).collect();
            html += &format!("<td>{lines}</td>");
        }
        html += "</tr>\n";
    }
    html + "</tbody>\n</table>\n"
}
