//! `make demo`: one policy of two limits admits, refuses, says which limit refused and for how long, and admits again.
//!
//! Every figure on the screen comes from a Decision of the memory store.

use std::error::Error;
use std::io::{self, ErrorKind, IsTerminal, Stdout, Write};
use std::thread::sleep;
use std::time::Duration;

use tidegate::{Decision, Limiter, Policy};

const LOGIN: &str = "20/minute; 5/3s";
const JOBS: &str = "leaky-bucket 4/s burst 3";
const USER: &str = "10/minute";
const TENANT: &str = "4/minute";

fn main() -> Result<(), Box<dyn Error>> {
    match run() {
        // The reader has closed the pipe, as in `make demo | head`.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) => {
            Ok(())
        }
        result => result,
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy("login", LOGIN)?
        .policy("jobs", JOBS)?
        .policy("per-user", USER)?
        .policy("per-tenant", TENANT)?
        .build()?;
    let mut screen = Screen::new();
    screen.line("")?;
    screen.line(&screen.bold("Tidegate, on the memory store (memory://)"))?;
    two_limits(&limiter, &mut screen)?;
    leaky_bucket(&limiter, &mut screen)?;
    several_keys(&limiter, &mut screen)?;
    screen.line("")?;
    Ok(())
}

/// All limits are charged or none, and waits are exact.
fn two_limits(limiter: &Limiter, screen: &mut Screen) -> Result<(), Box<dyn Error>> {
    screen.title(1, "Two limits, one check", LOGIN)?;
    let limits: Vec<String> = Policy::parse(LOGIN)?.limits().iter().map(ToString::to_string).collect();
    let row = |screen: &mut Screen, number: &str, decision: &Decision| {
        let left: String = decision.limits().map(|limit| format!("{:>16}", limit.remaining)).collect();
        screen.line(
            format!("  {number:>5}   {}{left}   {}", screen.verdict(decision), reason(decision, &limits)).trim_end(),
        )
    };
    let heads: String = limits.iter().map(|limit| format!("{:>16}", format!("{limit} left"))).collect();
    screen.line(&screen.dim(&format!("  check   answer {heads}")))?;

    let (mut admitted, mut refused) = (None, None);
    for number in 1..=8 {
        let decision = limiter.check("login", "alice")?;
        row(screen, &number.to_string(), &decision)?;
        let newest = if decision.allowed() { &mut admitted } else { &mut refused };
        *newest = Some(decision);
    }
    if let (Some(admitted), Some(refused)) = (&admitted, &refused) {
        let left = |decision: &Decision| decision.limits().next().map_or(0, |limit| limit.remaining);
        screen.line(&format!(
            "\n  All or nothing: {} had {} left before the refusals and has {} after them.",
            limits[0],
            left(admitted),
            left(refused),
        ))?;
        wait(limiter, screen, refused)?;
        let again = limiter.check("login", "alice")?;
        row(screen, "9", &again)?;
        let said = refused.retry_after().unwrap_or_default();
        let taken = again.at().saturating_sub(refused.at());
        screen.line(&screen.dim(&format!("\n  Told to wait {}; admitted after {}.", seconds(said), seconds(taken))))?;
        screen.line(
            &screen.dim(
                "  (A sliding window counts in steps of a twentieth of its period: room comes up to a step late.)",
            ),
        )?;
    }
    Ok(())
}

/// Waits for real and shows it: peeks tell how long is left and consume nothing.
fn wait(limiter: &Limiter, screen: &mut Screen, refused: &Decision) -> Result<(), Box<dyn Error>> {
    let whole = refused.retry_after().unwrap_or_default();
    let step = if screen.terminal { Duration::from_millis(40) } else { Duration::from_secs(1) };
    screen.line("")?;
    loop {
        let peek = limiter.peek("login", "alice", 1)?;
        let left = peek.retry_after().unwrap_or_default();
        screen.progress(left, whole)?;
        if peek.allowed() {
            return Ok(screen.line("")?);
        }
        sleep(left.min(step));
    }
}

/// A limit that shapes instead of refusing.
fn leaky_bucket(limiter: &Limiter, screen: &mut Screen) -> Result<(), Box<dyn Error>> {
    screen.title(2, "Even traffic: each Decision says when to go", JOBS)?;
    let limits = [JOBS.to_owned()];
    for number in 1..=4 {
        let decision = limiter.check("jobs", "reports")?;
        let what = if decision.allowed() {
            format!("go in {}", seconds(decision.delay()))
        } else {
            reason(&decision, &limits)
        };
        screen.line(&format!("  job {number}   {}   {what}", screen.verdict(&decision)))?;
    }
    Ok(())
}

/// All or nothing also across policies and keys.
fn several_keys(limiter: &Limiter, screen: &mut Screen) -> Result<(), Box<dyn Error>> {
    screen.title(3, "Two keys, one step", &format!("per-user {USER}, per-tenant {TENANT}"))?;
    for (user, cost) in [("alice", 1), ("bob", 2), ("bob", 2), ("alice", 1)] {
        let all = limiter.check_all([("per-user", user, cost), ("per-tenant", "acme", cost)])?;
        let left: Vec<String> = all
            .decisions()
            .iter()
            .map(|decision| format!("{:<14}", format!("{} {} left", decision.key(), decision.remaining())))
            .collect();
        let why = if all.allowed() { String::new() } else { format!("{} refused", all.policy()) };
        let what = format!("{user} at acme, cost {cost}");
        screen.line(format!("  {what:<23}{}   {}{why}", screen.verdict(&all), left.concat()).trim_end())?;
    }
    screen.line(&screen.dim("\n  The refusal took nothing from bob, and left acme what alice then used."))?;
    Ok(())
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

/// The output, with colours and a moving bar only for a terminal.
struct Screen {
    out: Stdout,
    terminal: bool,
    colours: bool,
}

impl Screen {
    fn new() -> Self {
        let out = io::stdout();
        let terminal = out.is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { out, terminal, colours: terminal && !refused }
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    fn title(&mut self, number: usize, title: &str, policy: &str) -> io::Result<()> {
        let title = self.bold(&format!("{number}. {title}"));
        self.line(&format!("\n{title}   {}\n", self.paint("36", policy)))
    }

    /// A bar that grows in place, or one line at a time where nothing can be overwritten.
    fn progress(&mut self, left: Duration, whole: Duration) -> io::Result<()> {
        const WIDTH: usize = 30;
        let share = 1.0 - left.as_secs_f64() / whole.as_secs_f64().max(0.001);
        let done = (share * WIDTH as f64).round().clamp(0.0, WIDTH as f64) as usize;
        let bar = format!("{}{}", "█".repeat(done), "░".repeat(WIDTH - done));
        let text = format!("  waiting {bar} {:>6} left", seconds(left));
        if self.terminal {
            write!(self.out, "\r{text}")?
        } else {
            write!(self.out, "{text}")?
        }
        if self.terminal && !left.is_zero() {
            return self.out.flush();
        }
        writeln!(self.out)
    }

    fn verdict(&self, decision: &Decision) -> String {
        if decision.allowed() { self.paint("32", "allowed") } else { self.paint("31", "refused") }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
