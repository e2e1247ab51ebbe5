//! The arguments of `simulate`, and the traffic and retries that follow from them.

use std::path::PathBuf;

use clap::{Args, value_parser};
use tidegate::{Algorithm, Policy, PolicyFile};
use tidegate_simulate::text::path_text;
use tidegate_simulate::{
    Event, LATEST, Plan, Retries, Retry, Shape, Theme, TraceFormat, TraceOptions, Traffic, usual_duration, value_name,
};

use crate::policy_argument::{self, POLICIES};
use crate::{Result, invalid, number_text, time_text};

/// The most calls of a pattern without `--calls`.
const USUAL_CALLS: u32 = 1_000_000;
/// How often a caller tries again without `--retries`.
const RETRIES: u32 = 5;
/// The most policies side by side.
const MAX_POLICIES: usize = 16;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, group(clap::ArgGroup::new("traffic").required(true).args(["pattern", "trace"])))]
pub(crate) struct Arguments {
    /// Notations, or names of policies in --policies [default: all policies of that file]
    #[arg(required_unless_present = POLICIES, value_name = "POLICY")]
    policy: Vec<String>,

    /// Make up traffic of this shape
    #[arg(long, value_name = "NAME", help_heading = "Traffic")]
    pattern: Option<Shape>,

    /// Read traffic from a file with timestamps, an access log or JSON lines. `-` is standard input
    #[arg(long, value_name = "FILE", help_heading = "Traffic")]
    trace: Option<PathBuf>,

    /// Replay only the calls of this key. A plot then shows the limit of one key
    #[arg(long, value_name = "KEY", help_heading = "Traffic")]
    only_key: Option<String>,

    #[command(flatten)]
    pattern_options: PatternOptions,

    /// The seed of random numbers. The same seed gives the same traffic and the same retries
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Pattern")]
    seed: u64,

    #[command(flatten)]
    trace_arguments: TraceArguments,

    #[command(flatten)]
    callers: Callers,

    /// Draw a plot into this file, which ends in .svg or .html. You can repeat the option
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) out: Vec<PathBuf>,

    /// The colours of the plots. `auto` follows the settings of the reader
    #[arg(long, value_enum, default_value_t = Theme::Auto, help_heading = "Output")]
    pub(super) theme: Theme,

    /// Write every decision to this file, as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) decisions: Option<PathBuf>,

    /// The policy file with the named policies
    #[arg(id = POLICIES, long = POLICIES, value_name = "FILE", help_heading = "Store")]
    policy_file: Option<PathBuf>,

    /// Replay on this store instead of in memory, with temporary keys that are removed at the end. The verb does not read
    /// TIDEGATE_STORE, so that it never uses the store of a service by mistake
    #[arg(long, value_name = "URL", hide_env = true, help_heading = "Store")]
    pub(super) store: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pattern")]
struct PatternOptions {
    /// The rate of the calls of all keys, such as 20/s, 1.5k/minute or 1M/s [default: twice the rate of the policies, and with
    /// outgoing their rate]
    #[arg(long, value_parser = number_text::rate, conflicts_with = "trace")]
    rate: Option<f64>,

    /// The length of the traffic, such as 90s, 10m or 1 day [default: some periods of the policies, or a day for daily]
    #[arg(long, value_name = "TIME", value_parser = length, conflicts_with = "trace")]
    duration: Option<u64>,

    /// The most calls without --duration. More would make the traffic shorter, but an attack keeps two windows, and a day its
    /// curve [default: 1000000]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1_000_000), conflicts_with = "trace")]
    calls: Option<u32>,

    /// The number of keys that make the calls [default: 10, and with outgoing 1, the service that is called]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=1_000_000), conflicts_with = "trace")]
    keys: Option<u32>,

    /// The window of bursts and of boundary attacks [default: the longest period of the policies]
    #[arg(long, value_name = "TIME", value_parser = length, conflicts_with = "trace")]
    window: Option<u64>,

    /// The cost of each call: a number, or numbers by the names of units [default: 1 of each]
    #[arg(long, value_name = "N|UNIT=N,…", conflicts_with = "trace")]
    cost: Option<String>,

    /// The class of the calls, one of the priorities of the policies
    #[arg(long, value_name = "CLASS", conflicts_with = "trace")]
    priority: Option<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Trace")]
struct TraceArguments {
    /// The format of the lines [default: found from the first line]
    #[arg(long, conflicts_with = "pattern")]
    format: Option<TraceFormat>,

    /// The field of JSON lines, or the column, with the time. Dots lead into objects [default: time, timestamp, ts, @timestamp, at or
    /// date]
    #[arg(long, value_name = "FIELD", conflicts_with = "pattern")]
    time_field: Option<String>,

    /// The key: a field of JSON lines, a column that the first line names, or a field of an access log (address, user, method, path,
    /// status, referer, agent)
    /// [default: address in an access log, else key, user, user_id, client, client_ip, remote_addr, remote_ip or ip]
    #[arg(long, value_name = "FIELD", conflicts_with = "pattern")]
    key_field: Option<String>,

    /// The field of JSON lines, or the column, with the cost of a call [default: cost, if the first line has it, else every call
    /// costs 1]
    #[arg(long, value_name = "FIELD", conflicts_with = "pattern")]
    cost_field: Option<String>,

    /// The field of JSON lines, or the column, with the class of a call [default: priority]
    #[arg(long, value_name = "FIELD", conflicts_with = "pattern")]
    priority_field: Option<String>,

    /// Sort the calls by time, in memory
    #[arg(long, conflicts_with = "pattern")]
    sort: bool,

    /// Skip and count lines that cannot be read, instead of stopping
    #[arg(long, conflicts_with = "pattern")]
    skip_bad_lines: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Callers")]
struct Callers {
    /// The reaction of callers that are refused [default: after with retry-storm, turn with outgoing, else never]
    #[arg(long, value_name = "WHEN")]
    retry: Option<Retry>,

    /// The number of times that a caller tries again. `turn` ignores it
    #[arg(long, value_name = "COUNT", default_value_t = RETRIES, value_parser = value_parser!(u32).range(1..=1_000))]
    retries: u32,
}

const EXAMPLES: &str = "\
Examples:

Which algorithm withstands an attack on the boundary of its window?
  $ tidegate simulate \"fixed-window 20/minute\" \"20/minute\" --pattern boundary --out plot.svg
What happens to refused callers that try again?
  $ tidegate simulate \"5/s\" \"gcra 5/s burst 10\" --pattern retry-storm --rate 100/s --retry backoff
How long does a backlog of 300 calls to a partner wait under its limits?
  $ tidegate simulate \"80/minute\" \"gcra 80/minute burst 1\" --pattern outgoing --rate 60/minute --duration 5m --out calls.svg
A page to read, a picture for a document, and the numbers for a program:
  $ tidegate simulate \"100/minute; 10/s\" --pattern daily --out page.html --out plot.svg --json
Who would have been refused yesterday? The client address is the key of an access log.
  $ tidegate simulate \"100/minute\" --trace access.log
  $ tidegate simulate \"100/minute\" --trace access.log --only-key 203.0.113.9 --out one-client.svg
  $ tidegate simulate \"100/minute\" --trace access.log --key-field user --skip-bad-lines
  $ tidegate simulate \"100/minute\" --trace calls.jsonl --time-field ts --key-field http.client.ip
  $ tidegate simulate \"100/minute\" --trace calls.csv --sort --decisions decisions.csv

A trace of timestamps has a time on each line and, after commas, a key and a cost. A first line such as time,key,cost or \
time,user names the columns. If a limit has a unit, such as tokens, a column or field with the name of the unit has the cost of a \
call in it. A column named priority has its class. Times are seconds since 1970 (milliseconds from 10^11 on) or RFC 3339. Without \
a key, all calls have the same key.

In the table, the longest wait is from a key's first refusal to its next admission. The worst count is the most units of one key \
in any window of a limit's period (t - period, t], beside the count of the limit. The fairness is Jain's index of the shares \
of admitted calls of the keys, and 1 if all are equal. A call holds its units of a concurrency limit for the ttl. With turns, \
`turn after` is the mean time from a call to its admission, for admitted calls. No caller tries again after the end of the traffic.

--json prints `traffic` (source, calls, units, keys, only_key, start, end; pattern, rate, duration, seed and window of a \
pattern; file, format, key_field, lines and skipped_lines of a trace), `store`, `command`, `files`, `notes`, and for each of \
`policies`: policy, notation, shadow, asked, admitted, refused, refused_percent, units_asked, units_admitted, shadow_denied, \
retries, gave_up, longest_wait and longest_wait_key, still_refused (keys, longest), worst (for each limit: limit, algorithm, \
count, unit, period, worst, ratio, key, at), fairness (jain, least, most), delay (mean, longest, worst) for a leaky-bucket, turn \
(mean, longest) for callers that wait for their turns, units (asked and admitted by name) for limits with units, and classes \
(asked and admitted by name) for calls with classes. Times are seconds. A null means that nothing of the kind happened.";

impl Arguments {
    /// The policies, each once.
    pub(super) fn policies(&self) -> Result<Vec<Policy>> {
        let file = self.policy_file.as_ref().map(PolicyFile::read).transpose()?;
        let policies = policy_argument::find_all(&self.policy, file.as_ref())?;
        if policies.len() > MAX_POLICIES {
            let count = policies.len();
            let message = format!("{count} policies are too many to compare: give at most {MAX_POLICIES}");
            return Err(invalid(message));
        }
        let names: Vec<&str> = policies.iter().map(Policy::name).collect();
        if let Some(twice) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            return Err(invalid(format!("the policy {:?} is given twice: leave one of them out", twice.1)));
        }
        Ok(policies)
    }

    /// The traffic of the chosen pattern or trace.
    pub(super) fn traffic(&self, policies: &[Policy]) -> Result<Traffic> {
        if let Some(path) = &self.trace {
            return Traffic::of_trace(path, self.trace_arguments.options(policies), self.only_key.clone());
        }
        let options = &self.pattern_options;
        let call = Event::new(options.cost.as_deref(), options.priority.clone())?;
        let shape = self.pattern.unwrap_or(Shape::Steady);
        let periods = policies.iter().flat_map(Policy::limits).map(|limit| limit.period().micros());
        let longest_period = periods.max().unwrap_or_default();
        let window = options.window.unwrap_or(longest_period);
        let usual = usual_duration(shape, window.max(longest_period));
        let keys = self.keys();
        let the_limit = f64::from(keys) * most_generous(policies, &call);
        let most_calls = f64::from(options.calls.unwrap_or(USUAL_CALLS));
        let rate = options.rate.unwrap_or_else(|| match shape {
            // Its curve takes a day, whatever the rate.
            Shape::Daily => (2.0 * the_limit).min(most_calls * 1e6 / options.duration.unwrap_or(usual) as f64),
            // A backlog that ends with the duration.
            Shape::Outgoing => the_limit,
            _ => 2.0 * the_limit,
        });
        let for_usual_calls = (most_calls / rate * 1e6) as u64;
        let duration = options.duration.unwrap_or_else(|| match shape {
            Shape::Daily => usual,
            // The attack takes two windows.
            Shape::Boundary => usual.min(for_usual_calls.max(2 * window)),
            _ => usual.min(for_usual_calls),
        });
        let plan = Plan { shape, rate, duration, keys, seed: self.seed, window, call };
        Traffic::of_pattern(plan, self.only_key.clone())
    }

    /// The number of keys of a pattern.
    fn keys(&self) -> u32 {
        let usual = if self.pattern == Some(Shape::Outgoing) { 1 } else { 10 };
        self.pattern_options.keys.unwrap_or(usual)
    }

    pub(super) fn retries(&self) -> Retries {
        let usual = match self.pattern {
            Some(Shape::RetryStorm) => Retry::After,
            Some(Shape::Outgoing) => Retry::Turn,
            _ => Retry::Never,
        };
        Retries { how: self.callers.retry.unwrap_or(usual), most: self.callers.retries, seed: self.seed }
    }

    /// The command that makes this simulation again, without the URL of the store.
    pub(super) fn as_command(&self) -> String {
        let Self { pattern_options, trace_arguments, callers, .. } = self;
        let path = |path: &PathBuf| path_text(path);
        let seconds = |micros: u64| format!("{}", micros as f64 / 1e6);
        let has_pattern = self.pattern.is_some();
        let has_seed = has_pattern || callers.retry == Some(Retry::Backoff);
        let options = [
            ("policies", self.policy_file.as_ref().map(path)),
            ("pattern", self.pattern.map(|shape| value_name(&shape))),
            ("trace", self.trace.as_ref().map(path)),
            ("rate", pattern_options.rate.map(|rate| rate.to_string())),
            ("duration", pattern_options.duration.map(seconds)),
            ("window", pattern_options.window.map(seconds)),
            ("calls", pattern_options.calls.map(|calls| calls.to_string())),
            ("keys", has_pattern.then(|| self.keys().to_string())),
            ("seed", has_seed.then(|| self.seed.to_string())),
            ("cost", pattern_options.cost.clone()),
            ("priority", pattern_options.priority.clone()),
            ("format", trace_arguments.format.map(|format| value_name(&format))),
            ("time-field", trace_arguments.time_field.clone()),
            ("key-field", trace_arguments.key_field.clone()),
            ("cost-field", trace_arguments.cost_field.clone()),
            ("priority-field", trace_arguments.priority_field.clone()),
            ("only-key", self.only_key.clone()),
            ("retry", callers.retry.map(|retry| value_name(&retry))),
            ("retries", (callers.retries != RETRIES).then(|| callers.retries.to_string())),
        ];
        let options = options.into_iter().filter_map(|(name, value)| Some(format!("--{name} {}", shell(&value?))));
        let flags = [("--sort", trace_arguments.sort), ("--skip-bad-lines", trace_arguments.skip_bad_lines)];
        let mut words = vec!["tidegate simulate".to_owned()];
        words.extend(self.policy.iter().map(|text| shell(text)).chain(options));
        words.extend(flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_owned()));
        words.join(" ")
    }
}

impl TraceArguments {
    fn options(&self, policies: &[Policy]) -> TraceOptions {
        let Self { format, time_field, key_field, cost_field, priority_field, sort, skip_bad_lines } = self.clone();
        let units = policies.iter().flat_map(Policy::limits).filter_map(|limit| limit.unit().cloned()).collect();
        TraceOptions { format, time_field, key_field, cost_field, priority_field, units, sort, skip_bad_lines }
    }
}

/// The highest rate that a policy admits for long, in such calls per second.
fn most_generous(policies: &[Policy], call: &Event) -> f64 {
    let of_policy = |policy: &Policy| {
        let limits = policy.limits().iter().filter(|limit| limit.algorithm() != Algorithm::Concurrency);
        limits
            .map(|limit| {
                limit.count() as f64 * 1e6 / limit.period().micros() as f64 / call.units_of(limit.unit()) as f64
            })
            .fold(f64::INFINITY, f64::min)
    };
    let rate = policies.iter().map(of_policy).filter(|rate| rate.is_finite()).fold(0.0, f64::max);
    if rate > 0.0 { rate } else { 1.0 }
}

/// Reads a length of time for the clock of a simulation, as microseconds.
fn length(text: &str) -> Result<u64, String> {
    let micros = u64::try_from(time_text::parse(text)?.as_micros()).ok();
    micros
        .filter(|micros| (1_000..=LATEST).contains(micros))
        .ok_or_else(|| "it must be from 1 ms to 142 years".to_owned())
}

/// Quotes a word for a shell.
fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn lengths() {
        assert_eq!(length("90s"), Ok(90_000_000));
        assert_eq!(length("1 day"), Ok(86_400_000_000));
        assert_eq!(length("2.5"), Ok(2_500_000));
        assert!(length("1; 2/s").is_err() && length("0").is_err() && length("soon").is_err());
        assert!(length("0.0001").is_err() && length("200 years").is_err());
    }
}
