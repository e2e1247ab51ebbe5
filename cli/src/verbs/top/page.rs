//! One reading, for people and as JSON.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tidegate::{Decision, Unit, host};
use tidegate_simulate::text::{columns_of, counted, escaped, fitted, number, of_unit, within};

use super::published::{PolicyRates, Published};
use super::{KeyLine, Observation, Top};
use crate::Output;
use crate::decision_text::when;
use crate::store_options::ChosenStore;
use crate::terminal::{BAD, BOLD, DIM, NAME, WARN, is_interactive, paint, screen_rows, width};
use crate::time_text::{length, moment};

/// The most lines of policies.
const POLICIES: usize = 20;

pub(super) struct Page<'a> {
    pub(super) top: &'a Top,
    pub(super) store: &'a ChosenStore,
    pub(super) reading: &'a Observation,
    pub(super) published: Option<&'a Published>,
}

impl Page<'_> {
    pub(super) fn show(&self, output: &mut Output, is_one_of_many: bool) {
        if output.is_json() {
            // One line for each reading, for programs that follow.
            return if is_one_of_many { output.json_line(&self.as_json()) } else { output.json(&self.as_json()) };
        }
        let screen = (is_one_of_many && is_interactive()).then(screen_rows);
        if screen.is_some() {
            output.clear_screen();
        }
        let end = if is_one_of_many && screen.is_none() { "\n" } else { "" };
        output.line(self.lines(screen).join("\n") + end);
    }

    /// At most as many lines as the screen has, because more would scroll the first ones away.
    fn lines(&self, screen: Option<usize>) -> Vec<String> {
        let mut lines = vec![format!(
            "{}  {} UTC, every {}",
            paint(BOLD, "tidegate top"),
            moment(since_1970(self.reading.at).as_micros() as u64),
            length(self.top.interval)
        )];
        lines.extend(self.sources());
        lines.push(String::new());
        let Some(screen) = screen else {
            lines.extend(self.policy_lines(POLICIES));
            lines.extend(self.key_lines(usize::MAX));
            return lines;
        };
        let rest = screen.saturating_sub(lines.len() + 1);
        // The heads, and the lines about the rest, take four.
        lines.extend(self.policy_lines((rest / 3).clamp(1, POLICIES)));
        lines.extend(self.key_lines(screen.saturating_sub(lines.len() + 3).max(1)));
        lines.truncate(screen);
        // A line that is wider than the terminal would take two.
        lines.iter_mut().for_each(|line| *line = cut_line(line, width()));
        lines
    }

    /// The sources of everything on the page, and the things that it does not show.
    fn sources(&self) -> Vec<String> {
        let sample = &self.reading.sample;
        let mut lines = Vec::new();
        if !self.store.is_memory() {
            lines.push(format!("store    {}", self.store.shown()));
        }
        if self.top.sample == 0 || self.store.is_memory() {
            lines.push(format!("servers  {}", paint(DIM, "not asked: names alone")));
        } else {
            let (label, servers) = match self.store.file() {
                Some(_) => ("file   ", String::new()),
                None => ("servers", format!("{} with ", sample.servers)),
            };
            lines.push(format!(
                "{label}  {servers}{} keys; looked at {}, {} of them with the prefix {:?}; slowest answer {}",
                number(sample.all_keys),
                number(sample.scanned as u64),
                number(sample.of_prefix as u64),
                self.top.store.prefix(self.store),
                length(sample.slowest),
            ));
            if sample.unknown > 0 {
                let keys = number(sample.unknown as u64);
                let advice = "fit no known policy: --policies FILE names the policies of your services";
                lines.push(paint(DIM, &format!("         {keys} of these {advice}")));
            }
        }
        lines.extend(sample.failures.iter().map(|failure| format!("         {}", paint(BAD, failure))));
        lines.push(match self.published {
            None => {
                paint(DIM, "names    none: set TIDEGATE_TOP to a folder, here and in the processes of this machine")
            }
            Some(published) => {
                let (fresh, stale) = published.counts();
                let programs = escaped(&published.programs().join(", "));
                let of = if programs.is_empty() { String::new() } else { format!(" ({programs})") };
                let stale = if stale == 0 { String::new() } else { format!("; {stale} have ended") };
                let unread = match published.unreadable {
                    0 => String::new(),
                    files => format!("; {files} files cannot be read"),
                };
                let limiters = counted(fresh, "limiter");
                format!("names    {limiters} of this machine{of}{stale}{unread}; other machines are not seen")
            }
        });
        lines
    }

    fn rates(&self) -> Vec<PolicyRates> {
        self.published.map(Published::rates).unwrap_or_default()
    }

    fn policy_lines(&self, most: usize) -> Vec<String> {
        let rates = self.rates();
        if rates.is_empty() {
            return Vec::new();
        }
        let widest = 40.min(width().saturating_sub(42)).max(10);
        let head = format!("{:<widest$}  {:>12}  {:>12}  {:>12}", "policy", "allowed/s", "denied/s", "in shadow/s");
        let mut lines = vec![paint(BOLD, &head)];
        for PolicyRates { policy, rates } in rates.iter().take(most) {
            let denied = format!("{:>12.1}", rates.denied);
            let denied = if rates.denied > 0.0 { paint(WARN, &denied) } else { denied };
            let name = paint(NAME, &cut(policy, widest));
            lines.push(format!("{name}  {:>12.1}  {denied}  {:>12.1}", rates.allowed, rates.shadow_denied));
        }
        if rates.len() > most {
            lines.push(paint(DIM, &format!("and {} more; --json has all", rates.len() - most)));
        }
        lines.push(String::new());
        lines
    }

    fn key_lines(&self, most: usize) -> Vec<String> {
        if self.reading.keys.is_empty() {
            return vec!["No key is at its limit, as far as this page sees.".to_owned()];
        }
        // The room that the three columns of numbers leave.
        let room = width().saturating_sub(47).max(25);
        let (for_key, for_policy) = (room - room * 2 / 5, room * 2 / 5);
        let head = format!(
            "{:<for_key$}  {:<for_policy$}  {:>17}  {:<13}  {:>9}",
            "key at its limit", "policy", "remaining", "next", "denied/s"
        );
        let mut lines = vec![paint(BOLD, &head)];
        for line in self.reading.keys.iter().take(most) {
            let key = cut(&line.key, for_key);
            let key = if line.is_named { key } else { paint(DIM, &key) };
            let (remaining, next) = match &line.decision {
                None => ("?".to_owned(), "?".to_owned()),
                Some(decision) => (
                    format!(
                        "{} of {}",
                        number(decision.remaining()),
                        of_unit(decision.limit(), unit_of(decision).as_ref())
                    ),
                    host::block_left(decision)
                        .map_or_else(|| when(decision.next_after()), |left| format!("blocked {}", length(left))),
                ),
            };
            let denied = line.denied_per_second.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.1}"));
            let policy = cut(&line.policies.join(" or "), for_policy);
            lines.push(format!("{key}  {}  {remaining:>17}  {next:<13}  {denied:>9}", paint(NAME, &policy)));
        }
        let unshown = self.reading.keys.len().saturating_sub(most);
        if unshown + self.reading.left_out > 0 {
            let how = if unshown > 0 { "a higher terminal" } else { "--rows" };
            lines.push(paint(DIM, &format!("and {} more; {how} shows more", unshown + self.reading.left_out)));
        }
        lines
    }

    fn as_json(&self) -> Value {
        let sample = &self.reading.sample;
        let names = self.published.map(|published| {
            let (fresh, stale) = published.counts();
            json!({
                "limiters": fresh,
                "ended": stale,
                "unreadable_files": published.unreadable,
                "programs": published.programs(),
            })
        });
        json!({
            "at": since_1970(self.reading.at).as_secs_f64(),
            "store": self.store.shown(),
            "servers": sample.servers,
            "server_keys": sample.all_keys,
            "looked_at": sample.scanned,
            "of_prefix": sample.of_prefix,
            "of_unknown_policies": sample.unknown,
            "slowest_answer": sample.slowest.as_secs_f64(),
            "failures": sample.failures,
            "names": names,
            "policies": self.rates(),
            "keys": self.reading.keys.iter().map(key_as_json).collect::<Vec<_>>(),
            "keys_left_out": self.reading.left_out,
        })
    }
}

fn key_as_json(line: &KeyLine) -> Value {
    let decision = line.decision.as_ref();
    json!({
        "key": line.is_named.then_some(&line.key),
        "digest": (!line.is_named).then_some(&line.key),
        "policies": line.policies,
        "remaining": decision.map(Decision::remaining),
        "limit": decision.map(Decision::limit),
        "unit": decision.and_then(unit_of).map(|unit| unit.name().to_owned()),
        "next_after": decision.and_then(Decision::next_after).map(|wait| wait.as_secs_f64()),
        "blocked_for": decision.and_then(host::block_left).map(|left| left.as_secs_f64()),
        "denied_per_second": line.denied_per_second,
    })
}

/// The unit of the limit that binds, if it has a name.
fn unit_of(decision: &Decision) -> Option<Unit> {
    decision.limits().nth(decision.binding_index())?.unit
}

fn since_1970(at: SystemTime) -> Duration {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Cuts a line to at most `columns` columns. Colour codes take none.
fn cut_line(line: &str, columns: usize) -> String {
    let mut kept = String::new();
    let mut left = columns;
    // Each part but the first begins with a code.
    for (index, part) in line.split('\x1b').enumerate() {
        let (code, text) = part.split_once('m').filter(|_| index > 0).unwrap_or(("", part));
        if index > 0 {
            kept += &format!("\x1b{code}m");
        }
        let shown = within(text, left);
        left = if shown.len() < text.len() { 0 } else { left - columns_of(shown) };
        kept += shown;
    }
    kept
}

/// A text from others, escaped, of exactly `columns` columns.
fn cut(text: &str, columns: usize) -> String {
    fitted(&escaped(text), columns)
}

#[cfg(test)]
mod tests {
    use super::cut_line;

    #[test]
    fn codes_of_colours_take_no_columns() {
        assert_eq!(cut_line("\x1b[1mtidegate\x1b[0m top", 6), "\x1b[1mtidega\x1b[0m");
        assert_eq!(cut_line("short", 80), "short");
        assert_eq!(cut_line("\x1b[36m潮汐潮\x1b[0m  5", 5), "\x1b[36m潮汐\x1b[0m");
    }
}
