//! `tidegate explain`: explains a policy in words, numbers and a picture.
//!
//! The numbers come from the rules. A greedy caller runs against the real limiter, and tests compare every bound with a
//! search through sequences of calls.

mod bursts;
mod greedy;
mod picture;
mod steady;
mod words;

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidegate::{Period, Policy};

use crate::classes;
use crate::policy_argument::{self, POLICIES, PoliciesOption};
use crate::redis_cost::RedisCost;
use crate::terminal::{BOLD, DIM, NAME, WARN, paint, width, wrapped};
use crate::time_text::length;
use crate::{Outcome, Output, Result};
use bursts::Burst;
use greedy::{GreedyCaller, Run, Wait, over_time};
use steady::Steady;
use tidegate_simulate::text::{columns_of, escaped, fitted, number, of_unit};

/// Steps of the caller of the picture, which take a few milliseconds.
const MAX_STEPS: usize = 3_000;
/// The most times to list in which one limit binds.
const WAITS: usize = 6;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ tidegate explain \"20/minute; 5/3s\"
  $ tidegate explain \"gcra 100/s burst 200; calendar-window 100000/day\"
  $ tidegate explain login --policies tidegate.yaml --json
  $ tidegate explain --policies tidegate.yaml")]
pub(crate) struct Explain {
    /// Notations such as "20/minute; 5/3s", or names of policies in --policies [default: all policies of that file]
    #[arg(required_unless_present = POLICIES, value_name = "POLICY")]
    named: Vec<String>,
    #[command(flatten)]
    policies: PoliciesOption,
}

/// The explanation of a policy.
struct Explanation<'a> {
    policy: &'a Policy,
    bursts: Vec<Burst>,
    steady: Option<Steady>,
    /// The run of a greedy caller, and the longest period. `None` if it gets nothing, or if nothing counts over time.
    greedy: Option<(Run, u64)>,
    cost: RedisCost,
    warnings: Vec<String>,
}

impl Explain {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let file = self.policies.read()?;
        let mut all = Vec::new();
        for (index, policy) in policy_argument::find_all(&self.named, file.as_ref())?.iter().enumerate() {
            let explanation = Explanation::of(policy)?;
            if output.is_json() {
                all.push(explanation.as_json());
            } else {
                if index > 0 {
                    output.line("");
                }
                explanation.show(output);
            }
        }
        if output.is_json() {
            output.json(&if self.named.len() == 1 { all.swap_remove(0) } else { Value::Array(all) });
        }
        Ok(Outcome::Done)
    }
}

impl<'a> Explanation<'a> {
    fn of(policy: &'a Policy) -> Result<Self> {
        let longest = over_time(policy).into_iter().map(|(_, limit)| limit.period().micros()).max().unwrap_or(0);
        let time = longest + longest / 4;
        let greedy = match GreedyCaller::new(policy)? {
            Some(caller) => Some(caller.run("greedy", 0, time, MAX_STEPS)?),
            None => None,
        };
        Ok(Self {
            policy,
            bursts: bursts::worst(policy)?,
            steady: steady::smoothest(policy),
            greedy: greedy.map(|run| (run, longest)).filter(|(run, _)| !run.admissions.is_empty()),
            cost: RedisCost::of(policy),
            warnings: policy.lint().into_iter().map(|warning| warning.message).collect(),
        })
    }

    /// The notation of the limit with this index.
    fn limit(&self, index: usize) -> String {
        self.policy.limits()[index].to_string()
    }

    fn show(&self, output: &mut Output) {
        let notation = self.policy.to_string();
        let name = if self.policy.name() == notation { String::new() } else { format!("{}  ", self.policy.name()) };
        output.line(paint(NAME, &format!("{name}{notation}")));
        if self.policy.limits().len() > 1 {
            output.line("All limits must admit a check; then all are charged, or none is.");
            if self.policy.limits().iter().any(|limit| limit.unit().is_some()) {
                output.line("Below, a call takes as many of each unit.");
            }
        }
        for limit in self.policy.limits() {
            self.paragraph(&paint(BOLD, &limit.to_string()), &words::limit(limit), output);
        }
        words::options(self.policy).iter().for_each(|sentence| self.paragraph("", sentence, output));
        self.show_classes(output);
        self.show_bursts(output);
        self.show_steady(output);
        self.show_greedy(output);
        heading("In Redis", output);
        self.cost.lines().iter().for_each(|line| self.paragraph("", line, output));
        if !self.warnings.is_empty() {
            heading("What to look at", output);
            for warning in &self.warnings {
                self.paragraph(&paint(WARN, "lint"), warning, output);
            }
        }
    }

    fn paragraph(&self, title: &str, text: &str, output: &mut Output) {
        if !title.is_empty() {
            output.line(format!("  {title}"));
        }
        let indent = if title.is_empty() { "  " } else { "    " };
        for line in wrapped(&escaped(text), width().saturating_sub(indent.len() + 1)) {
            output.line(format!("{indent}{line}"));
        }
    }

    fn show_classes(&self, output: &mut Output) {
        let classes = classes::of_policy(self.policy);
        if classes.is_empty() {
            return;
        }
        heading("Classes of calls", output);
        let limits = self.policy.limits();
        for class in classes {
            let free = limits.iter().zip(&class.free);
            let free: Vec<String> =
                free.map(|(limit, free)| format!("{} of {limit}", of_unit(*free, limit.unit()))).collect();
            let takes = classes::numbers(self.policy, &class.takes(self.policy));
            let text = format!("{} stays free: {}. It may take {takes}.", class.part, free.join(", "));
            self.paragraph(&paint(BOLD, class.name), &text, output);
        }
    }

    /// The unit of numbers for all limits together, or ` of each` if the limits have different units.
    fn counted(&self) -> String {
        let mut units = over_time(self.policy).into_iter().map(|(_, limit)| limit.unit());
        let first = units.next().flatten();
        match (first, units.all(|unit| unit == first)) {
            (None, true) => String::new(),
            (Some(unit), true) => format!(" {unit}"),
            (_, false) => EACH.to_owned(),
        }
    }

    fn show_bursts(&self, output: &mut Output) {
        if self.bursts.is_empty() {
            return;
        }
        heading("Worst burst", output);
        let windows: Vec<String> = self.bursts.iter().map(|burst| window_text(burst.window)).collect();
        let widest = windows.iter().map(String::len).max().unwrap_or(0).max(14);
        for (burst, window) in self.bursts.iter().zip(&windows) {
            let of = |count: u64| of_unit(count, self.policy.limits()[burst.limit].unit());
            let bound = of(burst.bound);
            let most = match burst.found {
                Some(found) if found == burst.bound => paint(BOLD, &bound),
                Some(found) => format!("{}, never more than {bound}", paint(BOLD, &of(found))),
                None => format!("at most {}", paint(BOLD, &bound)),
            };
            let limit = self.limit(burst.limit);
            let of = if self.policy.limits().len() > 1 { format!("  ({limit})") } else { String::new() };
            output.line(format!("  {window:<widest$}  {most}{}", paint(DIM, &of)));
        }
    }

    fn show_steady(&self, output: &mut Output) {
        if over_time(self.policy).is_empty() {
            return;
        }
        heading("Smoothest steady use", output);
        let Some(steady) = self.steady else { return output.line("  none: every check is denied") };
        let limit = &self.policy.limits()[steady.limit];
        let rate = limit.period().micros() as f64 / steady.interval as f64;
        output.line(format!(
            "  one{} every {}, never denied: {}{} per {}{}",
            if self.counted() == EACH { EACH } else { "" },
            paint(BOLD, &length(Duration::from_micros(steady.interval))),
            decimal(rate),
            limit.unit().map(|unit| format!(" {unit}")).unwrap_or_default(),
            words::name(limit.period()),
            paint(DIM, &format!("  ({limit})")),
        ));
    }

    fn show_greedy(&self, output: &mut Output) {
        let Some((run, longest)) = &self.greedy else { return };
        heading("A caller that takes all it can", output);
        let first = run.admissions[0].units;
        let mut so_far: u64 = 0;
        let mut admissions = run.admissions.iter().peekable();
        let mut units_by = |moment: u64| {
            while let Some(admission) = admissions.next_if(|admission| admission.at <= moment) {
                so_far += admission.units;
            }
            number(so_far)
        };
        let counted = self.counted();
        let by = |wait: &Wait| {
            // The moment after the last one of the wait.
            let until = format!("by {}", length(Duration::from_micros(wait.until + 1)));
            [until, format!("{}{counted}", units_by(wait.until)), format!("held back by {}", self.limit(wait.limit))]
        };
        let mut rows = vec![["at once".to_owned(), format!("{}{counted}", number(first)), String::new()]];
        rows.extend(binding(&run.waits, *longest).iter().map(by));
        let widest = |column: usize| rows.iter().map(|row| columns_of(&row[column]) + 2).max().unwrap_or(0);
        let rooms = [widest(0).max(16), widest(1).max(8 + columns_of(&counted))];
        for [until, units, limit] in &rows {
            let line = format!("  {}{}", fitted(until, rooms[0]), fitted(units, rooms[1]));
            output.line(if limit.is_empty() { line.trim_end().to_owned() } else { line + &paint(DIM, limit) });
        }
        let time = run.until;
        for line in picture::drawn(&run.admissions, time, width()) {
            output.line(line);
        }
    }

    fn as_json(&self) -> Value {
        let limit = |index: usize| self.limit(index);
        let limits: Vec<Value> = self
            .policy
            .limits()
            .iter()
            .map(|limit| {
                json!({
                    "notation": limit.to_string(),
                    "algorithm": limit.algorithm().name(),
                    "count": limit.count(),
                    "unit": limit.unit().map(tidegate::Unit::name),
                    "period": seconds(limit.period().micros()),
                    "burst": limit.algorithm().has_burst().then(|| limit.capacity()),
                    "words": words::limit(limit),
                })
            })
            .collect();
        let bursts: Vec<Value> = self
            .bursts
            .iter()
            .map(|burst| {
                json!({
                    "window": if burst.window <= 1 { json!(0) } else { json!(seconds(burst.window)) },
                    "units": burst.found.unwrap_or(burst.bound),
                    "reached": burst.found == Some(burst.bound),
                    "never_more_than": burst.bound,
                    "unit": self.policy.limits()[burst.limit].unit().map(tidegate::Unit::name),
                    "limit": limit(burst.limit),
                })
            })
            .collect();
        let steady = self.steady.map(|steady| {
            json!({
                "interval": seconds(steady.interval),
                "per_second": 1e6 / steady.interval as f64,
                "limit": limit(steady.limit),
            })
        });
        let greedy = self.greedy.as_ref().map(|(run, longest)| {
            json!({
                "time": seconds(run.until),
                "units": run.admissions.iter().map(|admission| admission.units).sum::<u64>(),
                "binds": binding(&run.waits, *longest).iter().map(|wait| json!({
                    "from": seconds(wait.from),
                    "until": seconds(wait.until),
                    "limit": limit(wait.limit),
                })).collect::<Vec<_>>(),
            })
        });
        json!({
            "policy": self.policy.name(),
            "notation": self.policy.to_string(),
            "limits": limits,
            "options": words::options(self.policy),
            "classes": classes::of_policy(self.policy).iter().map(|class| class.as_json(self.policy)).collect::<Value>(),
            "worst_bursts": bursts,
            "steady": steady,
            "greedy": greedy,
            "redis": self.cost.as_json(),
            "warnings": self.warnings,
        })
    }
}

/// Stands after numbers for all limits, if these have different units.
const EACH: &str = " of each";

fn heading(text: &str, output: &mut Output) {
    output.line("");
    output.line(paint(BOLD, text));
}

/// The first few times in which a limit binds, up to the end of the longest period.
fn binding(waits: &[Wait], longest: u64) -> Vec<Wait> {
    // A window includes its first moment, and not its last.
    let within = |wait: &Wait| Wait { until: wait.until.min(longest - 1), ..*wait };
    waits.iter().take_while(|wait| wait.from < longest).take(WAITS).map(within).collect()
}

fn window_text(window: u64) -> String {
    match Period::from_micros(window) {
        Ok(period) if window > 1 => format!("in any {}", words::name(period)),
        _ => "at one moment".to_owned(),
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A number with at most two digits after the point, and no zeros at the end.
fn decimal(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
