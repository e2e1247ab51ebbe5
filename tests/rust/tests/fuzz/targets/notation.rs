//! A notation, a length of time and a lease. An accepted text is written as a text that means the same. A refused one
//! has a place in the text, and a message of bounded length.

use std::fmt::Write;

use tidegate::policy::MAX_LIMITS;
use tidegate::{Error, Lease, Period, Policy};

use crate::fuzz::outcome::{magnitude, shape};

pub(crate) const WORDS: &[&str] = &[
    "20",
    "0",
    "/",
    " per ",
    "minute",
    "s",
    "ms",
    "months",
    "year",
    " ",
    ";",
    ",",
    "|",
    ":",
    "gcra ",
    "burst ",
    "ttl ",
    "concurrency ",
    "sliding-log ",
    "token_bucket ",
    "calendar-window ",
    " from day 15",
    " from monday",
    " at 06:00",
    " in Europe/Berlin",
    "fixed-window ",
    "leaky-bucket ",
    "-",
    "é",
    "\u{202e}",
    "\u{1d}",
    "99999999999999999999",
    "1000000000000",
    "%",
    "://",
    "@",
    "\t",
];

const LONGEST_MESSAGE: usize = 700;

pub(crate) fn run(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let mut outcome = match Policy::parse(&text) {
        Ok(policy) => read(&text, &policy),
        Err(error) => refused(&text, &error),
    };
    match text.parse::<Period>() {
        Ok(period) => {
            assert_eq!(period.to_string().parse::<Period>().as_ref(), Ok(&period), "a period is read back");
            outcome += " period";
        }
        Err(error) => drop(refused(&text, &error)),
    }
    match Lease::parse(&text) {
        Ok(lease) => {
            assert_eq!(Lease::parse(&lease.to_string()).as_ref(), Ok(&lease), "a lease is read back");
            outcome += " lease";
        }
        Err(error) => assert!(error.message().len() <= LONGEST_MESSAGE, "{error}"),
    }
    outcome
}

fn read(text: &str, policy: &Policy) -> String {
    let shown = policy.to_string();
    let again = Policy::parse(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(&again, policy, "{shown} means the same");
    assert_eq!(again.to_string(), shown, "the canonical notation is that of itself");
    assert_eq!(Policy::parse(&text.to_ascii_uppercase()).as_ref(), Ok(policy), "case does not matter");
    assert_eq!(Policy::parse(&format!(" {text}\t")).as_ref(), Ok(policy), "blanks around it do not matter");
    assert!((1..=MAX_LIMITS).contains(&policy.limits().len()), "{shown}");
    let mut outcome = String::new();
    for limit in policy.limits() {
        assert!(limit.count() <= 1_000_000_000_000 && limit.capacity() <= 1_000_000_000_000, "{limit}");
        let micros = limit.period().micros();
        assert!((1_000..=3_660 * 86_400 * 1_000_000).contains(&micros), "{limit}");
        let numbers = (magnitude(limit.count()), limit.burst().map(magnitude), limit.period().unit());
        write!(outcome, "{} {numbers:?}; ", limit.algorithm()).expect("a text");
        if policy.limits().len() > 2 {
            break;
        }
    }
    outcome
}

fn refused(text: &str, error: &Error) -> String {
    assert_eq!(error.code(), "policy_invalid");
    let message = error.message();
    assert!(message.len() <= LONGEST_MESSAGE, "{} bytes: {message}", message.len());
    assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{message:?}");
    let location = error.location().unwrap_or_else(|| panic!("no location: {message}"));
    assert_eq!((location.file.as_deref(), location.line), (None, 1), "{message}");
    let column = location.column;
    assert!((1..=text.chars().count() + 1).contains(&column), "column {column} of {text:?}");
    let lines: Vec<&str> = message.lines().collect();
    match lines.get(2).filter(|line| line.trim() == "^") {
        Some(caret) => {
            let at = caret.chars().count() - 1;
            let (marked, there) = (lines[1].chars().nth(at), text.chars().nth(column - 1));
            // Characters that cannot be printed are shown as another one.
            let plain = there.filter(char::is_ascii_graphic);
            assert!(plain.is_none() || marked == plain, "the caret is at {marked:?}, the error at {there:?}");
            assert!(there.is_some() || marked.is_none(), "the caret is behind the end: {message}");
        }
        // Only a text that may hold a password is not shown.
        None => assert!(text.contains(':'), "the text is not shown: {message}"),
    }
    shape(message)
}
