//! Writes a policy file in any format.

use std::fmt::Write;

use tidegate::policy::{DEFAULT_PRECISION, Format};
use tidegate::{Algorithm, Limit, Period, Policy, PolicyFile, TimeUnit};

/// The same file in that format.
pub(super) fn written(file: &PolicyFile, format: Format) -> String {
    let is = if format == Format::Toml { " = " } else { ": " };
    let write = Writer { is, quotes_names: format != Format::Yaml };
    let store = file.store().map(|urls| match (file.rollout(), urls) {
        (Some((to, percent)), urls) => {
            let rollout = [("from", quoted(&urls[0])), ("to", quoted(to)), ("percent", format!("{percent:?}"))];
            write.map(&[("rollout", write.map(&rollout))])
        }
        (None, [url]) => quoted(url),
        (None, urls) => format!("[{}]", urls.iter().map(|url| quoted(url)).collect::<Vec<_>>().join(", ")),
    });
    let policies: Vec<(String, String)> =
        file.policies().iter().map(|policy| (policy.name().to_owned(), write.policy(policy))).collect();
    match format {
        Format::Toml => {
            let mut text = store.map_or_else(String::new, |store| format!("store = {store}\n"));
            text += "[policies]\n";
            for (name, policy) in policies {
                writeln!(text, "{} = {policy}", name_of(&name)).expect("a text");
            }
            text
        }
        _ => {
            let policies: Vec<String> =
                policies.iter().map(|(name, policy)| format!("{}{is}{policy}", name_of(name))).collect();
            let mut entries: Vec<(&str, String)> = store.map(|store| ("store", store)).into_iter().collect();
            entries.push(("policies", format!("{{{}}}", policies.join(", "))));
            write.map(&entries)
        }
    }
}

struct Writer {
    is: &'static str,
    quotes_names: bool,
}

impl Writer {
    fn map(&self, entries: &[(&str, String)]) -> String {
        let name = |name: &str| if self.quotes_names { format!("\"{name}\"") } else { name.to_owned() };
        let entries = entries.iter().map(|(key, value)| format!("{}{}{value}", name(key), self.is));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
    }

    fn policy(&self, policy: &Policy) -> String {
        let limits: Vec<String> = policy.limits().iter().map(|limit| self.limit(limit)).collect();
        let options = policy.options();
        let mut entries = vec![("limits", format!("[{}]", limits.join(", ")))];
        if let Some(choice) = options.on_store_error {
            entries.push(("on_store_error", quoted(choice.name())));
        }
        if let Some(blocks) = &options.block_for {
            let lengths: Vec<String> = blocks.lengths().iter().copied().map(length).collect();
            entries.push((
                "block_for",
                if lengths.len() == 1 { lengths[0].clone() } else { format!("[{}]", lengths.join(", ")) },
            ));
        }
        if let Some(period) = options.forgive {
            entries.push(("forgive", length(period)));
        }
        if let Some(lease) = options.lease {
            entries.push((
                "lease",
                lease.as_units().map_or_else(|| quoted(&lease.to_string()), |units| units.to_string()),
            ));
        }
        entries.push(("shadow", options.shadow.to_string()));
        entries.push(("count_denied", options.count_denied.to_string()));
        entries.push(("journal", options.journal.to_string()));
        self.map(&entries)
    }

    fn limit(&self, limit: &Limit) -> String {
        let concurrency = limit.algorithm() == Algorithm::Concurrency;
        let mut entries = vec![
            ("algorithm", quoted(limit.algorithm().name())),
            ("count", limit.count().to_string()),
            (if concurrency { "ttl" } else { "period" }, length(limit.period())),
        ];
        entries.extend(limit.burst().map(|burst| ("burst", burst.to_string())));
        entries.extend(limit.initial().map(|initial| ("initial", initial.to_string())));
        if limit.precision() != DEFAULT_PRECISION {
            entries.push(("precision", limit.precision().to_string()));
        }
        self.map(&entries)
    }
}

/// Seconds, or a text if the calendar makes a difference.
fn length(period: Period) -> String {
    if period.unit() >= TimeUnit::Week {
        return quoted(&format!("{} {}", period.multiple(), period.unit().name()));
    }
    format!("{}.{:06}", period.micros() / 1_000_000, period.micros() % 1_000_000)
}

/// A text in quotes that every format reads. `$${` is `${` itself.
fn quoted(text: &str) -> String {
    name_of(&text.replace("${", "$${"))
}

/// In names nothing is replaced.
fn name_of(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20
                || (0x7f..0xa0).contains(&u32::from(c))
                || "\u{feff}\u{2028}\u{2029}".contains(c) =>
            {
                write!(quoted, "\\u{:04x}", u32::from(c)).expect("a text");
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
