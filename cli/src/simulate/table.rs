//! The table, for people: a line for each policy, and below it what each limit let through.

use super::report::{NamedWorst, PolicyReport, Report, percent};
use super::traffic::moment::{trimmed, words};
use crate::calendar::{date, time_of_day};
use crate::number_text::number;

/// The columns after the policy.
pub(super) const COLUMNS: [&str; 6] =
    ["asked", "admitted", "refused", "longest wait", "worst in any window", "fairness (least to most)"];
/// How wide a curve of the terminal is.
const CURVE: usize = 48;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The cells of a policy, without its name. A cell has a line for each limit, or one.
pub(super) fn cells(policy: &PolicyReport) -> [Vec<String>; 6] {
    let mut refused =
        vec![format!("{} ({} %)", number(policy.refused), trimmed(percent(policy.refused, policy.asked)))];
    if policy.shadow {
        refused.push(format!(
            "shadow: {} ({} %)",
            number(policy.shadow_denied),
            trimmed(percent(policy.shadow_denied, policy.asked))
        ));
    }
    let mut asked = vec![number(policy.asked)];
    if policy.retries > 0 || policy.gave_up > 0 {
        asked.push(format!("{} retries", number(policy.retries)));
        asked.push(format!("{} gave up", number(policy.gave_up)));
    }
    let mut worst: Vec<String> = policy.worst.iter().map(worst_text).collect();
    if let Some(delay) = &policy.delay {
        worst.extend(delay.worst.iter().map(|worst| format!("after delay: {}", worst_text(worst))));
    }
    let fairness = policy.fairness.map_or_else(String::new, |fairness| {
        let (least, most) = (trimmed(fairness.least * 100.0), trimmed(fairness.most * 100.0));
        format!("{:.3} ({least} to {most} %)", fairness.jain)
    });
    [asked, vec![number(policy.admitted)], refused, waits(policy), worst, vec![fairness]]
}

fn waits(policy: &PolicyReport) -> Vec<String> {
    let mut lines = vec![policy.longest_wait.as_ref().map_or_else(|| "none".to_owned(), |wait| words(wait.micros))];
    let longest = policy.longest_wait.as_ref().map_or(0, |wait| wait.micros);
    if let (keys, Some(wait)) = &policy.still_refused
        && wait.micros > longest
    {
        let keys = if *keys == 1 { "1 key".to_owned() } else { format!("{} keys", number(*keys as u64)) };
        lines.push(format!("{keys} at the end: {}", words(wait.micros)));
    }
    if let Some(delay) = &policy.delay {
        lines.push(format!("delay {}, at most {}", words(delay.mean.round() as u64), words(delay.longest)));
    }
    lines
}

fn worst_text(worst: &NamedWorst) -> String {
    let period = worst.limit.period();
    let percent = worst.ratio().map_or_else(String::new, |ratio| format!(" ({:.0} %)", ratio * 100.0));
    format!("{} of {}/{period}{percent}", number(worst.units), number(worst.limit.count()))
}

/// The whole text.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n{}\n\n", title(report), description(report));
    let mut rows: Vec<Vec<Vec<String>>> = Vec::new();
    let header = std::iter::once("policy").chain(COLUMNS);
    rows.push(header.map(|column| vec![column.to_owned()]).collect());
    for policy in &report.policies {
        let mut name = vec![policy.name.clone()];
        if policy.name != policy.notation {
            name.push(policy.notation.clone());
        }
        rows.push(std::iter::once(name).chain(cells(policy)).collect());
    }
    let width = |column: usize| {
        let lines = rows.iter().filter_map(|row| row.get(column)).flatten();
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=COLUMNS.len()).map(width).collect();
    for row in &rows {
        for line in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{:width$}", cell.get(line).map_or("", String::as_str)));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
    }
    text.push('\n');
    text.push_str(&curves(report));
    let notes = report.notes.iter().map(|note| format!("note: {note}\n"));
    let files = report.files.iter().map(|file| format!("written: {file}\n"));
    for lines in [notes.collect::<String>(), files.collect()] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{lines}"));
        }
    }
    text.trim_end().to_owned()
}

/// What the traffic was.
pub(super) fn title(report: &Report) -> String {
    let length = words(report.end - report.start);
    let calls = if report.calls == 1 { "call" } else { "calls" };
    format!("{}: {} {calls} in {length}", report.traffic.title, number(report.calls))
}

/// The numbers of the traffic.
pub(super) fn description(report: &Report) -> String {
    let mut parts = report.traffic.details.clone();
    if report.traffic.is_recorded {
        parts.push(if report.keys == 1 { "1 key".to_owned() } else { format!("{} keys", number(report.keys as u64)) });
    }
    if report.has_dates {
        let moment = |moment: u64| format!("{} {}", date(moment), time_of_day(moment, 1_000_000));
        parts.push(format!("{} to {} UTC", moment(report.start), moment(report.end)));
    }
    if report.units != report.calls {
        parts.push(format!("{} units", number(report.units)));
    }
    if report.store != "memory" {
        parts.push(format!("replayed on {}", report.store));
    }
    parts.join(", ")
}

/// A curve of what came, and one of what each policy admitted, all on the same scale.
fn curves(report: &Report) -> String {
    let parts = |policy: &PolicyReport, admitted: bool| {
        policy.timeline.parts(report.end, CURVE, |bucket| if admitted { bucket.admitted } else { bucket.asked })
    };
    let mut rows = Vec::new();
    for (index, policy) in report.policies.iter().enumerate() {
        // With retries, each policy is asked something else.
        if index == 0 || policy.retries > 0 {
            let of = if policy.retries > 0 { format!("asked of {}", policy.name) } else { "asked".to_owned() };
            rows.push((of, parts(policy, false)));
        }
        rows.push((format!("admitted by {}", policy.name), parts(policy, true)));
    }
    let most = rows.iter().flat_map(|(_, parts)| parts).copied().max().unwrap_or(0).max(1);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let block = |units: &u64| {
        // What is more than nothing is seen.
        let height = (*units as f64 / most as f64 * 8.0).ceil() as usize;
        BLOCKS[height.min(8)]
    };
    let mut text = String::new();
    for (name, parts) in rows {
        let curve: String = parts.iter().map(block).collect();
        text.push_str(&format!("{name:width$}  {curve}│\n"));
    }
    let part = words((report.end - report.start) / CURVE as u64);
    text.push_str(&format!("{:width$}  each column {part}, at most {} units\n", "", number(most)));
    text
}
