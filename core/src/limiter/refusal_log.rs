//! A line for each refusal, if the limiter has `log_refusals`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::LimiterId;
use crate::decision::Decision;
use crate::plan::Plan;
use crate::process::log::Log;
use crate::store::request::Answer;

/// The most lines of one second, so that a client that floods a service does not flood its log.
const LINES_PER_SECOND: u64 = 10;
/// The longest name of a policy, and the longest key, that a line shows in full, in characters.
const MAX_SHOWN: usize = 120;
/// The bits for the count of lines. The bits above them are the second of these lines.
const COUNT_BITS: u32 = 8;

/// Writes a bounded number of lines in each second.
pub(super) struct RefusalLog {
    limiter: LimiterId,
    log: Arc<Log>,
    started: Instant,
    /// The second of the last line and its lines so far. No lock, because a forked child may begin while its parent logs.
    lines: AtomicU64,
    /// The refusals without a line since the last line.
    left_out: AtomicU64,
}

impl RefusalLog {
    pub(super) fn new(limiter: LimiterId, log: Arc<Log>) -> Self {
        Self { limiter, log, started: Instant::now(), lines: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Logs a refusal, or counts it if this second has all its lines.
    pub(super) fn note(&self, plan: &Arc<Plan>, key: &str, answer: &Answer) {
        if !self.takes_line(self.started.elapsed().as_secs()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let decision = Decision::new(self.limiter, Arc::clone(plan), key, 1, answer.clone());
        let mut line = line_of(&decision);
        match self.left_out.swap(0, Ordering::Relaxed) {
            0 => {}
            1 => line += "; 1 refusal before it was not logged",
            count => line += &format!("; {count} refusals before it were not logged"),
        }
        self.log.warn(&line);
    }

    /// True if this second has room for one more line.
    fn takes_line(&self, second: u64) -> bool {
        let next = |lines: u64| match (lines >> COUNT_BITS, lines & ((1 << COUNT_BITS) - 1)) {
            (same, count) if same == second => (count < LINES_PER_SECOND).then_some(lines + 1),
            _ => Some((second << COUNT_BITS) + 1),
        };
        self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Quotes a text, so that no key begins a line, and shortens it.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

fn line_of(decision: &Decision) -> String {
    let (policy, key, source) = (quoted(decision.policy()), quoted(decision.key()), decision.source());
    let refused = if decision.unavailable() {
        "the store is missing".to_owned()
    } else if decision.limits().all(|limit| !limit.exceeded) {
        "the key is blocked".to_owned()
    } else {
        format!("limit {:?}", decision.binding_limit().to_string())
    };
    let wait = match decision.retry_after() {
        Some(wait) => format!("retry after {:.3} s", wait.as_secs_f64()),
        None => "no wait helps".to_owned(),
    };
    format!("refused: policy {policy}, key {key}, {refused}, {wait}, answered by {}", source.name())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::{Limiter, ManualClock, Policy};

    fn limiter(lines: &Arc<Mutex<Vec<String>>>, on: bool) -> (Limiter, Arc<ManualClock>) {
        let (lines, clock) = (Arc::clone(lines), Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000))));
        let policies = [("login", "fixed-window 2/minute; 100/hour"), ("never", "0/minute"), ("mail", "concurrency 1")];
        let mut builder = Limiter::builder().clock(Arc::clone(&clock)).log_refusals(on);
        for (name, notation) in policies {
            builder = builder.policy(name, notation).expect(name);
        }
        let shadow = Policy::parse("1/hour").expect("a policy").named("shadow").expect("a name");
        let options = crate::Options { shadow: true, ..crate::Options::default() };
        let shadow = Policy::new(shadow.limits().to_vec(), options).and_then(|policy| policy.named("shadow"));
        let builder = builder.named(shadow.expect("a policy")).expect("a policy");
        let listener = move |line: &str| lines.lock().expect("lines").push(line.to_owned());
        (builder.on_warning(Arc::new(listener)).build().expect("a limiter"), clock)
    }

    #[test]
    fn a_refusal_is_one_line_with_what_refused_and_how_long() {
        let lines = Arc::default();
        let (limiter, clock) = limiter(&lines, true);
        for _ in 0..2 {
            assert!(limiter.check("login", "alice").expect("an answer").allowed());
            limiter.check("shadow", "alice").expect("an answer");
        }
        clock.advance(Duration::from_millis(1_500));
        limiter.peek("login", "alice", 1).expect("an answer");
        limiter.check("login", "alice").expect("an answer");
        limiter.check("never", "a\nb").expect("an answer");
        let _held = limiter.hold("mail", "alice", 1).expect("a hold");
        drop(limiter.hold("mail", "alice", 1).expect("an answer"));
        limiter.block("login", "bob", Duration::from_secs(60)).expect("a block");
        limiter.check("login", "bob").expect("an answer");
        let lines = lines.lock().expect("lines");
        let expected = [
            r#"refused: policy "login", key "alice", limit "fixed-window 2/minute", retry after 58.500 s, answered by store"#,
            r#"refused: policy "never", key "a\nb", limit "0/minute", no wait helps, answered by store"#,
            r#"refused: policy "mail", key "alice", limit "concurrency 1 ttl 1 minute", retry after 60.000 s, answered by store"#,
            r#"refused: policy "login", key "bob", the key is blocked, retry after 60.000 s, answered by store"#,
        ];
        assert_eq!(*lines, expected);
    }

    #[test]
    fn nothing_is_logged_where_it_is_not_asked_for() {
        let lines = Arc::default();
        let (limiter, _) = limiter(&lines, false);
        limiter.check("never", "alice").expect("an answer");
        assert!(lines.lock().expect("lines").is_empty());
    }

    #[test]
    fn a_second_has_ten_lines_and_the_next_line_says_how_many_are_missing() {
        let lines = Arc::new(Mutex::new(Vec::<String>::new()));
        let (limiter, _) = limiter(&lines, true);
        let begun = Instant::now();
        for _ in 0..1_000 {
            limiter.check("never", "alice").expect("an answer");
        }
        let seconds = begun.elapsed().as_secs() + 2;
        assert!(lines.lock().expect("lines").len() as u64 <= LINES_PER_SECOND * seconds);
        std::thread::sleep(Duration::from_millis(1_100));
        limiter.check("never", &"k".repeat(500)).expect("an answer");
        let lines = lines.lock().expect("lines");
        let last = lines.last().expect("a line");
        assert!(last.contains(&format!("key \"{}\"…,", "k".repeat(MAX_SHOWN))), "{last}");
        assert!(last.ends_with("refusals before it were not logged"), "{last}");
        let told =
            |line: &String| line.split_once("; ").and_then(|(_, told)| told.split(' ').next()?.parse::<usize>().ok());
        assert_eq!(lines.iter().filter_map(told).sum::<usize>() + lines.len(), 1_001);
    }

    #[test]
    fn a_second_takes_lines_by_its_number() {
        let log = RefusalLog::new(LimiterId::of_digest(1), Log::new(None));
        for second in [0, 1, 5, 1 << 40] {
            let taken = (0..1_000).filter(|_| log.takes_line(second)).count() as u64;
            assert_eq!(taken, LINES_PER_SECOND, "{second}");
        }
    }
}
