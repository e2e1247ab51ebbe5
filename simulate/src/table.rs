//! The table, for people: a row for each policy, and below it curves of the asked and admitted units.

use crate::calendar::{date, time_of_day};
use crate::report::{NamedWorst, PolicyReport, Report, percent};
use crate::text::{columns, columns_of, counted, escaped, fitted, number, of_unit};
use crate::timeline::Bucket;
use crate::traffic::moment::{trimmed, words};

/// The columns after the policy.
pub(crate) const COLUMNS: [&str; 6] =
    ["asked", "admitted", "refused", "longest wait", "worst in any window", "fairness (least to most)"];
/// The width of a curve on the terminal.
const CURVE: usize = 48;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The cells of a policy, without its name. A cell has a line for each limit, or one.
pub(crate) fn cells(policy: &PolicyReport) -> [Vec<String>; 6] {
    let figures = &policy.figures;
    let share = |count: u64| format!("{} ({} %)", number(count), trimmed(percent(count, figures.asked)));
    let mut refused = vec![share(figures.refused())];
    if policy.policy.options().shadow {
        refused.push(format!("shadow: {}", share(figures.shadow_denied)));
    }
    let mut asked = vec![number(figures.asked)];
    if figures.retries > 0 || figures.gave_up > 0 {
        asked.push(format!("{} retries", number(figures.retries)));
        asked.push(format!("{} gave up", number(figures.gave_up)));
    }
    let mut admitted = vec![number(figures.admitted)];
    let units = figures.units.iter().map(|(unit, sums)| (unit.name(), sums));
    let classes = figures.classes.iter().map(|(class, sums)| (class.as_str(), sums));
    for (name, sums) in units.chain(classes) {
        asked.push(format!("{} {name}", number(sums[0])));
        admitted.push(format!("{} {name}", number(sums[1])));
    }
    let mut worst: Vec<String> = policy.worst.iter().map(worst_text).collect();
    let after_delay = policy.worst_after_delay.iter().flatten();
    worst.extend(after_delay.map(|worst| format!("after delay: {}", worst_text(worst))));
    let fairness = figures.fairness().map_or_else(String::new, |fairness| {
        let (least, most) = (trimmed(fairness.least * 100.0), trimmed(fairness.most * 100.0));
        format!("{:.3} ({least} to {most} %)", fairness.jain)
    });
    [asked, admitted, refused, waits(policy), worst, vec![fairness]]
}

fn waits(policy: &PolicyReport) -> Vec<String> {
    let figures = &policy.figures;
    let longest = figures.longest_wait.map(|wait| wait.micros);
    let mut lines = vec![longest.map_or_else(|| "none".to_owned(), words)];
    if let (keys, Some(wait)) = policy.still_refused
        && wait > longest.unwrap_or(0)
    {
        lines.push(format!("{} at the end: {}", counted(number(keys as u64), "key"), words(wait)));
    }
    if policy.has_turns {
        let mean = words(figures.mean_turn().round() as u64);
        lines.push(format!("turn after {mean}, at most {}", words(figures.longest_turn)));
    }
    if policy.worst_after_delay.is_some() {
        let mean = words(figures.mean_delay().round() as u64);
        lines.push(format!("delay {mean}, at most {}", words(figures.longest_delay)));
    }
    lines
}

fn worst_text(worst: &NamedWorst) -> String {
    let period = worst.limit.period();
    let percent = worst.ratio().map_or_else(String::new, |ratio| format!(" ({:.0} %)", ratio * 100.0));
    format!("{} of {}/{period}{percent}", number(worst.units), of_unit(worst.limit.count(), worst.limit.unit()))
}

/// The table and the curves, as text.
pub fn table(report: &Report) -> String {
    let heads = std::iter::once("policy").chain(COLUMNS).map(|column| vec![column.to_owned()]);
    let mut rows: Vec<Vec<Vec<String>>> = vec![heads.collect()];
    for policy in &report.policies {
        let (name, notation) = policy.names();
        let name = std::iter::once(name).chain(notation).collect();
        rows.push(std::iter::once(name).chain(cells(policy)).collect());
    }
    // A cell of several lines takes as many rows.
    let lines = rows.iter().flat_map(|row| {
        let height = row.iter().map(Vec::len).max().unwrap_or(0);
        (0..height).map(|line| row.iter().map(|cell| cell.get(line).cloned().unwrap_or_default()).collect())
    });
    let lines = columns(&lines.collect::<Vec<Vec<String>>>()).join("\n");
    let mut text = format!("{}\n{}\n\n{lines}\n\n{}", title(report), description(report), curves(report));
    let notes = report.notes.iter().map(|note| format!("note: {}\n", escaped(note)));
    let files = report.files.iter().map(|file| format!("written: {file}\n"));
    for lines in [notes.collect::<String>(), files.collect()] {
        if !lines.is_empty() {
            text += &format!("\n{lines}");
        }
    }
    text.trim_end().to_owned()
}

/// The kind of the traffic, its calls and its length.
pub(crate) fn title(report: &Report) -> String {
    let length = words(report.end - report.start);
    format!("{}: {} in {length}", escaped(&report.traffic.title), counted(number(report.calls), "call"))
}

/// The numbers of the traffic.
pub(crate) fn description(report: &Report) -> String {
    let mut parts: Vec<String> = report.traffic.details.iter().map(|detail| escaped(detail)).collect();
    if report.traffic.is_recorded {
        parts.push(counted(number(report.keys as u64), "key"));
    }
    if report.has_dates {
        let moment = |moment: u64| format!("{} {}", date(moment), time_of_day(moment, 1_000_000));
        parts.push(format!("{} to {} UTC", moment(report.start), moment(report.end)));
    }
    if report.units != report.calls {
        parts.push(format!("{} units", number(report.units)));
    }
    match report.store {
        "memory" => {}
        "file" => parts.push("replayed on a file".to_owned()),
        store => parts.push(format!("replayed on {store}")),
    }
    parts.join(", ")
}

/// A curve of the asked units, and one of the units that each policy admitted, all on the same scale.
fn curves(report: &Report) -> String {
    let parts = |policy: &PolicyReport, of: fn(&Bucket) -> u64| policy.figures.timeline.parts(report.end, CURVE, of);
    let mut rows = Vec::new();
    for (index, policy) in report.policies.iter().enumerate() {
        let (name, retries) = (policy.names().0, policy.figures.retries);
        // With retries, each policy gets other calls.
        if index == 0 || retries > 0 {
            let of = if retries > 0 { format!("asked of {name}") } else { "asked".to_owned() };
            rows.push((of, parts(policy, |bucket| bucket.asked)));
        }
        rows.push((format!("admitted by {name}"), parts(policy, |bucket| bucket.admitted)));
    }
    let most = rows.iter().flat_map(|(_, parts)| parts).copied().max().unwrap_or(0).max(1);
    let width = rows.iter().map(|(name, _)| columns_of(name)).max().unwrap_or(0);
    let block = |units: &u64| {
        // The smallest number above 0 is still visible.
        let height = (*units as f64 / most as f64 * 8.0).ceil() as usize;
        BLOCKS[height.min(8)]
    };
    let mut text = String::new();
    for (name, parts) in rows {
        let curve: String = parts.iter().map(block).collect();
        text.push_str(&format!("{}  {curve}│\n", fitted(&name, width)));
    }
    let part = words((report.end - report.start) / CURVE as u64);
    text.push_str(&format!("{:width$}  each column {part}, at most {} units\n", "", number(most)));
    text
}
