//! `tidegate demo`: a policy of two limits admits, refuses, names the limit that refused and the wait, admits again.
//!
//! Every figure on the screen comes from a Decision of the memory store.

use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidegate::{Decision, Limiter, Policy, host};

use crate::decision_text::as_json;
use crate::terminal::{BAD, BOLD, DIM, GOOD, NAME, bar, is_interactive, paint};
use crate::{Outcome, Output, Result};

const LOGIN: &str = "20/minute; 5/3s";
const JOBS: &str = "leaky-bucket 4/s burst 3";
const USER: &str = "10/minute";
const TENANT: &str = "4/minute";

#[derive(Debug, Args)]
#[command(after_help = "It takes a few seconds, because it really waits.

Examples:
  $ tidegate demo
  $ tidegate demo --json")]
pub(crate) struct Demo {}

/// The limiter of the demonstration, and its output.
struct Screen<'a> {
    limiter: Limiter,
    output: &'a mut Output,
    /// The steps for `--json`.
    steps: Vec<Value>,
}

impl Demo {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let limiter = host::unpublished(Limiter::builder())
            .policy("login", LOGIN)?
            .policy("jobs", JOBS)?
            .policy("per-user", USER)?
            .policy("per-tenant", TENANT)?
            .build()?;
        let mut screen = Screen { limiter, output, steps: Vec::new() };
        screen.line("");
        screen.line(&paint(BOLD, "Tidegate, on the memory store (memory://)"));
        screen.two_limits()?;
        screen.leaky_bucket()?;
        screen.several_keys()?;
        screen.line("");
        let steps = screen.steps;
        if output.is_json() {
            output.json(&json!({"store": "memory://", "steps": steps}));
        }
        Ok(Outcome::Done)
    }
}

impl Screen<'_> {
    fn line(&mut self, text: &str) {
        if !self.output.is_json() {
            self.output.line(text);
        }
    }

    fn title(&mut self, number: u32, title: &str, policy: &str) {
        self.line(&format!("\n{}   {}\n", paint(BOLD, &format!("{number}. {title}")), paint(NAME, policy)));
    }

    /// Keeps a Decision for `--json`.
    fn keep(&mut self, title: &str, policy: &Policy, decision: &Decision) {
        self.steps.push(json!({"step": title, "decision": as_json(decision, policy)}));
    }

    /// All limits are charged or none, and waits are exact.
    fn two_limits(&mut self) -> Result<()> {
        self.title(1, "Two limits, one check", LOGIN);
        let policy = Policy::parse(LOGIN)?;
        let limits: Vec<String> = policy.limits().iter().map(ToString::to_string).collect();
        let heads: String = limits.iter().map(|limit| format!("{:>16}", format!("{limit} left"))).collect();
        self.line(&paint(DIM, &format!("  check   answer {heads}")));
        let (mut admitted, mut refused) = (None, None);
        for number in 1..=8 {
            let decision = self.limiter.check("login", "alice")?;
            self.row(number, &decision, &limits);
            self.keep("two limits", &policy, &decision);
            let newest = if decision.allowed() { &mut admitted } else { &mut refused };
            *newest = Some(decision);
        }
        let (Some(admitted), Some(refused)) = (admitted, refused) else { return Ok(()) };
        let left = |decision: &Decision| decision.limits().next().map_or(0, |limit| limit.remaining);
        self.line(&format!(
            "\n  All or nothing: {} had {} left before the refusals and has {} after them.",
            limits[0],
            left(&admitted),
            left(&refused),
        ));
        self.wait(&refused)?;
        let again = self.limiter.check("login", "alice")?;
        self.row(9, &again, &limits);
        self.keep("two limits", &policy, &again);
        let said = refused.retry_after().unwrap_or_default();
        let taken = again.at().saturating_sub(refused.at());
        let told = format!("  Told to wait {}; admitted after {}.", seconds(said), seconds(taken));
        self.line(&format!("\n{}", paint(DIM, &told)));
        let steps = "  (A sliding window counts in steps of a twentieth of its period: room comes up to a step late.)";
        self.line(&paint(DIM, steps));
        Ok(())
    }

    fn row(&mut self, number: u32, decision: &Decision, limits: &[String]) {
        let left: String = decision.limits().map(|limit| format!("{:>16}", limit.remaining)).collect();
        let text = format!("  {number:>5}   {}{left}   {}", answer(decision), reason(decision, limits));
        self.line(text.trim_end());
    }

    /// Waits for real and shows it. Peeks return the time that is left and consume nothing.
    fn wait(&mut self, refused: &Decision) -> Result<()> {
        let whole = refused.retry_after().unwrap_or_default();
        let step = if is_interactive() { Duration::from_millis(40) } else { Duration::from_secs(1) };
        self.line("");
        while !self.output.is_closed() {
            let peek = self.limiter.peek("login", "alice", 1)?;
            let left = peek.retry_after().unwrap_or_default();
            let share = 1.0 - left.as_secs_f64() / whole.as_secs_f64().max(0.001);
            let text = format!("  waiting {} {:>6} left", bar(share, 30), seconds(left));
            if is_interactive() && !self.output.is_json() {
                self.output.progress(&text);
            } else {
                self.line(&text);
            }
            if peek.allowed() {
                break;
            }
            sleep(left.min(step));
        }
        Ok(())
    }

    /// A limit that shapes instead of refusing.
    fn leaky_bucket(&mut self) -> Result<()> {
        self.title(2, "Even traffic: each Decision says when to go", JOBS);
        let (policy, limits) = (Policy::parse(JOBS)?, [JOBS.to_owned()]);
        for number in 1..=4 {
            let decision = self.limiter.check("jobs", "reports")?;
            let what = if decision.allowed() {
                format!("go in {}", seconds(decision.delay()))
            } else {
                reason(&decision, &limits)
            };
            self.line(&format!("  job {number}   {}   {what}", answer(&decision)));
            self.keep("even traffic", &policy, &decision);
        }
        Ok(())
    }

    /// All or nothing also across policies and keys.
    fn several_keys(&mut self) -> Result<()> {
        self.title(3, "Two keys, one step", &format!("per-user {USER}, per-tenant {TENANT}"));
        for (user, cost) in [("alice", 1), ("bob", 2), ("bob", 2), ("alice", 1)] {
            let all = self.limiter.check_all([("per-user", user, cost), ("per-tenant", "acme", cost)])?;
            let left: Vec<String> = all
                .decisions()
                .iter()
                .map(|decision| format!("{:<14}", format!("{} {} left", decision.key(), decision.remaining())))
                .collect();
            let why = if all.allowed() { String::new() } else { format!("{} refused", all.policy()) };
            let what = format!("{user} at acme, cost {cost}");
            self.line(format!("  {what:<23}{}   {}{why}", answer(&all), left.concat()).trim_end());
            self.steps.push(json!({"step": "two keys", "user": user, "cost": cost, "allowed": all.allowed()}));
        }
        let left = "  The refusal took nothing from bob, and left acme what alice then used.";
        self.line(&format!("\n{}", paint(DIM, left)));
        Ok(())
    }
}

fn answer(decision: &Decision) -> String {
    if decision.allowed() { paint(GOOD, "allowed") } else { paint(BAD, "refused") }
}

/// Which limit refused, and for how long.
fn reason(decision: &Decision, limits: &[String]) -> String {
    let refusals: Vec<String> = decision
        .limits()
        .zip(limits)
        .filter(|(limit, _)| limit.exceeded)
        .map(|(limit, name)| match limit.retry_after {
            Some(wait) => format!("{name} refused, room in {}", seconds(wait)),
            None => format!("{name} refused, for good"),
        })
        .collect();
    refusals.join("; ")
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
