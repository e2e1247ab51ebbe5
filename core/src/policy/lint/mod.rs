//! Warnings about policies that are valid but probably not what their author meant.

mod redundant;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use super::lease::SHORTEST_LEASE;
use super::options::OnStoreError;
use super::{Policy, PolicyFile, notation};
use crate::algorithm::{AlgorithmKind, Limit, SECOND};
use crate::error::{Result, SourceLocation};

/// Something in a policy or a policy file that probably does not do what its author meant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The policy's name.
    pub policy: String,
    /// The position in the file or in the notation. `None` for a policy in code.
    pub location: Option<SourceLocation>,
    /// The problem, and the advice.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}: {}", self.policy, self.message)
    }
}

/// Every warning about a file, in the order of its policies.
#[must_use]
pub fn lint(file: &PolicyFile) -> Vec<Warning> {
    warnings(file.policies(), &WarningSource::File(file))
}

/// Every warning about policies in code, in their order.
#[must_use]
pub fn lint_policies<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Vec<Warning> {
    warnings(policies, &WarningSource::Code)
}

/// Every warning about a policy file or a notation.
///
/// # Errors
/// As [`PolicyFile::read`] for the name of a file, and as [`Policy::parse`] for a notation.
pub(crate) fn lint_text(text: &str) -> Result<Vec<Warning>> {
    let path = Path::new(text);
    // The extension of a file has no digits, but a notation has some before its unit.
    let named = path.extension().and_then(OsStr::to_str).is_some_and(|end| end.chars().all(char::is_alphabetic));
    if named || !text.contains(|c: char| c.is_ascii_digit()) {
        return PolicyFile::read(path).map(|file| lint(&file));
    }
    let columns: Vec<usize> = notation::parse_located(text)?.into_iter().map(|(column, _)| column).collect();
    Ok(warnings([&Policy::parse(text)?], &WarningSource::Notation(&columns)))
}

/// The source of the policies.
enum WarningSource<'a> {
    Code,
    /// One policy in one line, with the column of each limit from 0.
    Notation(&'a [usize]),
    File(&'a PolicyFile),
}

impl WarningSource<'_> {
    fn location(&self, policy: usize, limit: Option<usize>) -> Option<SourceLocation> {
        match self {
            Self::Code => None,
            Self::Notation(columns) => Some(SourceLocation::new(None, 1, columns[limit.unwrap_or(0)] + 1)),
            Self::File(file) => {
                let of_limit = limit.and_then(|limit| file.limit_location(policy, limit));
                of_limit.or_else(|| file.policy_location(policy)).cloned()
            }
        }
    }

    /// True if the store is a table of PostgreSQL whose last commits a crash may lose.
    fn may_lose_commits(&self) -> bool {
        let Self::File(file) = self else { return false };
        let may_lose = |url: &String| url.starts_with("postgres") && !url.contains("durability=sync");
        file.store().into_iter().flatten().any(may_lose)
    }

    fn new_form(&self, policy: usize) -> Option<String> {
        let Self::File(file) = self else { return None };
        file.new_form(policy)
    }
}

fn warnings<'a>(policies: impl IntoIterator<Item = &'a Policy>, source: &WarningSource<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut folded: HashMap<String, &str> = HashMap::new();
    for (index, policy) in policies.into_iter().enumerate() {
        let mut warn = |limit: Option<usize>, message: String| {
            let location = source.location(index, limit);
            warnings.push(Warning { policy: policy.name().to_owned(), location, message });
        };
        if let Some(new_form) = source.new_form(index) {
            warn(None, format!("this is the shape of older files: write the policy under `policies`, as `{new_form}`"));
        }
        names(policy, &mut folded, |message| warn(None, message));
        options(policy, |message| warn(None, message));
        lease(policy, |message| warn(None, message));
        if source.may_lose_commits() && policy.limits().iter().any(is_long) {
            let of_a_day = "a crash of PostgreSQL may lose the last fraction of a second of usage: for a quota of a day and longer \
                            add `durability=sync` to the options of the store";
            warn(None, of_a_day.to_owned());
        }
        for (at, limit) in policy.limits().iter().enumerate() {
            numbers(limit, |message| warn(Some(at), message));
        }
        redundant::redundant_limits(policy.limits(), |at, message| warn(Some(at), message));
    }
    warnings
}

fn names<'a>(policy: &'a Policy, folded: &mut HashMap<String, &'a str>, mut warn: impl FnMut(String)) {
    let name = policy.name();
    let fold = |c: char| !matches!(c, '-' | '_' | '.') && !c.is_whitespace();
    let key = name.chars().filter(|c| fold(*c)).flat_map(char::to_lowercase).collect();
    if let Some(other) = folded.get(&key) {
        warn(format!(
            "the name differs from `{other}` only in case or separators: rename one, so that no call takes the wrong one"
        ));
    } else {
        folded.insert(key, name);
    }
    // The name of a policy without one is its notation, which leaves some numbers out.
    if name != policy.to_string() && Policy::parse(name).is_ok_and(|notation| notation.limits() != policy.limits()) {
        warn("the name is also a notation, and the policy has other limits: rename the policy".to_owned());
    }
}

/// A lease that never takes a unit.
fn lease(policy: &Policy, mut warn: impl FnMut(String)) {
    let Some(lease) = policy.options().lease else { return };
    let units = lease.share_of(policy.limits());
    if units < 2 {
        return warn(format!(
            "`lease: {lease}` is {units} of the units of its smallest limit, and never leases: raise it, or remove it"
        ));
    }
    if let Some(limit) = policy.limits().iter().find(|limit| limit.lease_life() < SHORTEST_LEASE) {
        warn(format!("{limit} is too short to lease: units could be spent for less than 5 ms; remove `lease`"));
    }
}

fn options(policy: &Policy, mut warn: impl FnMut(String)) {
    let options = policy.options();
    if options.shadow && options.on_store_error == Some(OnStoreError::Closed) {
        warn("a shadow policy never denies, but `on_store_error: closed` denies when the store fails: use `open` or `local`".to_owned());
    }
    let has_holds = policy.limits().iter().any(|limit| limit.algorithm().kind() == AlgorithmKind::Held);
    if let Some(longest) = options.max_hold.filter(|_| !has_holds) {
        warn(format!(
            "`max_hold: {longest}` is for holds, and no limit here is held: add a concurrency limit, or remove it"
        ));
    }
    let Some(lengths) = &options.block_for else { return };
    let block = lengths.of_level(1);
    // Only if the block ends before every limit has units again. Otherwise its author probably wants it.
    let shortest = policy
        .limits()
        .iter()
        .filter(|limit| limit.algorithm().kind() != AlgorithmKind::Held && limit.count() > 0)
        .min_by_key(|limit| wait(limit));
    if let Some(limit) = shortest.filter(|limit| block.micros() < wait(limit)) {
        warn(format!(
            "`block_for: {lengths}` is over before {limit} has room again: make it longer than that, or remove it"
        ));
    }
}

/// True for a quota of a day and longer.
fn is_long(limit: &Limit) -> bool {
    limit.algorithm().kind() != AlgorithmKind::Held && limit.period().micros() >= 24 * 3_600 * SECOND
}

/// The typical wait of a caller that has used everything at once, in microseconds.
fn wait(limit: &Limit) -> u64 {
    let period = limit.period().micros();
    if limit.algorithm().has_burst() { period / limit.count().max(1) } else { period }
}

fn numbers(limit: &Limit, mut warn: impl FnMut(String)) {
    let count = limit.count();
    if count == 0 {
        warn("a count of 0 always denies: that is fine for a switch, otherwise raise the count".to_owned());
        return;
    }
    match limit.burst() {
        Some(0) => warn("a burst of 0 always denies: raise it to at least 1, or leave it out".to_owned()),
        Some(burst) if burst < count && limit.algorithm().kind() == AlgorithmKind::Bucket => warn(format!(
            "burst {burst} is below the count of {count}{unit}: at most {burst}{unit} pass at once, and a check that costs more \
             never passes; that is fine for even pacing, otherwise leave the burst out",
            unit = redundant::counted(limit)
        )),
        _ => {}
    }
    limit.lint(&mut warn);
}

// The tests write policy files.
#[cfg(all(test, feature = "files"))]
mod tests;
