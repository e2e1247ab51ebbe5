//! One page of HTML with the drawing, the table, and how it was made. It loads nothing.

use super::super::report::Report;
use super::super::table::{self, COLUMNS};
use super::Theme;

const STYLE: &str = "
:root { color-scheme: SCHEME; --background: #ffffff; --text: #1f2933; --muted: #5b6673; --line: #e1e6eb; --code: #f3f5f7 }
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
const DARK: &str = "--background: #161b22; --text: #e6edf3; --muted: #9da7b3; --line: #303842; --code: #21262d";

/// A text as HTML and SVG have it.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The page.
pub(super) fn page(report: &Report, svg: &str, theme: Theme) -> String {
    let title = escaped(&table::title(report));
    let (scheme, dark) = match theme {
        Theme::Auto => ("light dark", format!("@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}")),
        Theme::Light => ("light", String::new()),
        Theme::Dark => ("dark", format!(":root {{ {DARK} }}")),
    };
    let style = STYLE.replace("SCHEME", scheme).replace("DARK", &dark);
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

fn rows(report: &Report) -> String {
    let header: String = std::iter::once("policy").chain(COLUMNS).map(|column| format!("<th>{column}</th>")).collect();
    let mut html = format!("<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n");
    for policy in &report.policies {
        html.push_str(&format!("<tr><td><code>{}</code>", escaped(&policy.name)));
        if policy.name != policy.notation {
            html.push_str(&format!("<div class=\"muted\">{}</div>", escaped(&policy.notation)));
        }
        html.push_str("</td>");
        for cell in table::cells(policy) {
            let lines: String = cell.iter().map(|line| format!("<div>{}</div>", escaped(line))).collect();
            html.push_str(&format!("<td>{lines}</td>"));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n");
    html
}
