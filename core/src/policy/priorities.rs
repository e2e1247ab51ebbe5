//! Classes of calls that leave a part of a policy free.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;

use super::lease::{WHOLE, hundredths};
use super::suggestion::did_you_mean;
use crate::algorithm::{Limit, is_word};
use crate::error::{Error, Result};

/// The most classes of a policy.
const MAX_CLASSES: usize = 16;
/// The longest name of a class, in bytes.
const MAX_NAME: usize = 64;

/// Classes of calls, each with the part of every limit that stays free for calls above it. A call of the class is admitted only if
/// that part is left afterwards. A call without a class may take everything.
///
/// ```
/// use tidegate::{CheckOptions, Limiter, Options, Policy, Priorities};
///
/// let priorities = Priorities::new([("batch", "30%")])?;
/// let options = Options { priorities: Some(priorities), ..Options::default() };
/// let policy = Policy::new(Policy::parse("10/minute")?.limits().to_vec(), options)?;
/// let limiter = Limiter::builder().build()?;
/// let batch = CheckOptions { priority: Some("batch".into()), ..CheckOptions::default() };
/// let admitted = (0..10).filter(|_| limiter.check_with(&policy, "org", &batch).is_ok_and(|decision| decision.allowed())).count();
/// assert_eq!(admitted, 7);
/// assert!(limiter.check(&policy, "org")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priorities(Box<[(CompactString, u64)]>);

impl Priorities {
    /// Classes by their names, each with a part such as `30%`.
    ///
    /// # Errors
    /// `policy_invalid` for no class, more than 16 or one twice, for a name that is not made of a-z, 0-9, - and _ with one
    /// of a-z first, and for a part that is not from 0% to 100%.
    pub fn new<N: AsRef<str>, P: AsRef<str>>(classes: impl IntoIterator<Item = (N, P)>) -> Result<Self> {
        let mut known: Vec<(CompactString, u64)> = Vec::new();
        for (name, part) in classes {
            let (name, part) = (name.as_ref().trim(), part.as_ref());
            if !is_word(name) || name.bytes().any(|byte| byte.is_ascii_uppercase()) || name.len() > MAX_NAME {
                return Err(wrong(format!(
                    "{:?} cannot be the name of a class: give at most {MAX_NAME} characters of a-z, 0-9, - and _, and begin \
                     with one of a-z",
                    shown(name)
                )));
            }
            if known.iter().any(|(other, _)| other == name) {
                return Err(wrong(format!("{name:?} is given twice")));
            }
            let hundredths = part.trim().strip_suffix('%').and_then(hundredths).filter(|part| *part <= WHOLE);
            let Some(hundredths) = hundredths else {
                return Err(wrong(format!(
                    "{name} is {:?}: it must be a part from 0% to 100%, as in `30%`",
                    shown(part)
                )));
            };
            known.push((name.into(), hundredths));
        }
        if known.is_empty() || known.len() > MAX_CLASSES {
            return Err(wrong(format!("there are {} classes: give from 1 to {MAX_CLASSES}", known.len())));
        }
        Ok(Self(known.into()))
    }

    /// Each class with its part, such as `30%`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|(name, part)| (name.as_str(), percent(*part)))
    }

    /// The part of a class.
    ///
    /// # Errors
    /// `config_invalid` for a class that is not declared.
    pub(crate) fn part_of(&self, class: &str, policy: &str) -> Result<CapacityPart> {
        let found = self.0.iter().find(|(name, _)| name == class);
        found.map(|(_, part)| CapacityPart(*part)).ok_or_else(|| {
            let names = || self.0.iter().map(|(name, _)| name.as_str());
            let near = did_you_mean(class, names());
            let names = names().collect::<Vec<_>>().join(", ");
            Error::config(format!("priority: {policy:?} has no class {:?}: it has {names}{near}", shown(class)))
        })
    }

    /// The number of different smaller parts, including 0 for calls without a class. The line serves lower ranks first.
    pub(crate) fn rank_of(&self, class: &str) -> u64 {
        let part = |class: &str| self.0.iter().find(|(name, _)| name == class).map_or(0, |(_, part)| *part);
        let own = part(class);
        let less: BTreeSet<u64> = self.0.iter().map(|(_, part)| *part).chain([0]).filter(|part| *part < own).collect();
        less.len() as u64
    }

    /// # Errors
    /// `policy_invalid` for a class that could never get a call admitted.
    pub(super) fn validate(&self, limits: &[Limit]) -> Result<()> {
        for (name, part) in &self.0 {
            for limit in limits {
                let (capacity, reserve) = (limit.capacity(), CapacityPart(*part).of(limit.capacity()));
                if reserve > 0 && reserve >= capacity {
                    return Err(wrong(format!(
                        "a call of {name:?} would have to leave {} of \"{limit}\" free, which is {reserve} of {capacity}, so none could \
                         ever be admitted; give it a smaller part, or the limit a larger number",
                        percent(*part)
                    )));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0)
            + self.0.iter().map(|(name, _)| if name.is_heap_allocated() { name.capacity() } else { 0 }).sum::<usize>()
    }
}

/// A part of a limit's capacity, in hundredths of a percent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CapacityPart(u64);

impl CapacityPart {
    /// That part of a capacity, rounded up.
    pub(crate) fn of(self, capacity: u64) -> u64 {
        (u128::from(capacity) * u128::from(self.0)).div_ceil(u128::from(WHOLE)) as u64
    }
}

fn percent(hundredths: u64) -> String {
    format!("{}%", hundredths as f64 / 100.0)
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_NAME).collect()
}

fn wrong(message: String) -> Error {
    Error::policy(format!("priorities: {message}"))
}

/// The form of files: `batch: 30%, background: 60%`.
impl fmt::Display for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes: Vec<String> = self.iter().map(|(name, part)| format!("{name}: {part}")).collect();
        f.write_str(&classes.join(", "))
    }
}

/// Reads the text that `Display` writes.
impl FromStr for Priorities {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let class = |class: &str| {
            let parts = class.split_once(':').map(|(name, part)| (name.to_owned(), part.to_owned()));
            parts.ok_or_else(|| {
                wrong(format!("{:?} is not a class with its part: write it as in `batch: 30%`", shown(class)))
            })
        };
        Self::new(text.split(',').map(class).collect::<Result<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Options, Policy};

    fn policy(notation: &str, priorities: &str) -> Result<Policy> {
        let options = Options { priorities: Some(priorities.parse()?), ..Options::default() };
        Policy::new(Policy::parse(notation)?.limits().to_vec(), options)
    }

    #[test]
    fn a_class_has_a_part_of_each_limit() {
        let priorities: Priorities = "batch: 30%, background: 60.5 %".parse().expect("classes");
        assert_eq!(priorities.to_string(), "batch: 30%, background: 60.5%");
        let reserve = |class, capacity| priorities.part_of(class, "p").expect("a class").of(capacity);
        assert_eq!(
            (reserve("batch", 10), reserve("batch", 11), reserve("batch", 1_000_000_000_000)),
            (3, 4, 300_000_000_000)
        );
        assert_eq!(reserve("background", 200), 121);
        let error = priorities.part_of("bach", "api").expect_err("an unknown class");
        assert_eq!(error.code(), "config_invalid");
        assert!(error.to_string().contains("did you mean `batch`?"), "{error}");
        for text in
            ["", "batch", "batch: 30", "batch: -1%", "batch: 101%", "batch: nan%", "9a: 1%", "a: 1%, a: 2%", "a b: 1%"]
        {
            assert_eq!(text.parse::<Priorities>().expect_err(text).code(), "policy_invalid", "{text}");
        }
    }

    #[test]
    fn a_class_that_could_never_be_admitted_is_an_error() {
        for (notation, priorities) in [("gcra 1/s", "batch: 30%"), ("10/s; 2/m", "a: 10%, b: 60%"), ("5/s", "a: 100%")]
        {
            let error = policy(notation, priorities).expect_err(notation);
            assert_eq!(error.code(), "policy_invalid");
            assert!(error.to_string().contains("could ever be admitted"), "{error}");
        }
        for (notation, priorities) in [("gcra 2/s", "batch: 30%"), ("0/s", "batch: 30%"), ("gcra 1/s", "batch: 0%")] {
            policy(notation, priorities).expect(notation);
        }
    }
}
