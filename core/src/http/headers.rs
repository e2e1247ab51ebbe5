//! The fields of a response that announce the limits: the IETF fields, the older `X-RateLimit-*`, and `Retry-After`.

use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use super::field_names::{LIMIT, OLD_LIMIT, OLD_REMAINING, OLD_RESET, POLICY, RETRY_AFTER};
use super::{ietf, retry_after, seconds};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::policy::{Policy, quoted};

/// Every name that [`headers`] may return, for hosts that prepare them.
pub const NAMES: [&str; 6] = [POLICY, LIMIT, OLD_LIMIT, OLD_REMAINING, OLD_RESET, RETRY_AFTER];

/// The choice of fields that announce the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Headers {
    /// The IETF fields of the newest revision of their draft, and the older ones.
    #[default]
    Both,
    /// `RateLimit-Policy` and `RateLimit`, of the newest revision of their draft.
    Ietf,
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10, also when newer revisions exist.
    Ietf10,
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11, also when newer revisions exist.
    Ietf11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    Legacy,
    /// None of them. `Retry-After` stays, because it belongs to responses with 429 and 503.
    Off,
}

impl Headers {
    /// All choices, in the order of messages.
    pub const ALL: [Self; 6] = [Self::Both, Self::Ietf, Self::Ietf10, Self::Ietf11, Self::Legacy, Self::Off];

    /// The word for it in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Ietf => "ietf",
            Self::Ietf10 => "ietf-10",
            Self::Ietf11 => "ietf-11",
            Self::Legacy => "legacy",
            Self::Off => "off",
        }
    }

    /// True if the IETF fields are sent. Drafts 10 and 11 have the same form.
    #[must_use]
    pub const fn has_ietf(self) -> bool {
        matches!(self, Self::Both | Self::Ietf | Self::Ietf10 | Self::Ietf11)
    }

    /// True if the older fields are sent.
    #[must_use]
    pub const fn has_legacy(self) -> bool {
        matches!(self, Self::Both | Self::Legacy)
    }

    /// The choice with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

impl FromStr for Headers {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::from_name(name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::config(format!("headers cannot be {}: it must be one of {known}", quoted(name)))
        })
    }
}

/// The fields of the response, in order.
///
/// A policy in shadow is not announced, because it limits no request. If the store of a policy failed, its quota is
/// announced, but not the units that are left.
#[must_use]
pub fn headers(decision: &Decision, which: Headers) -> Vec<(&'static str, String)> {
    headers_of_all(&[decision], which)
}

/// The header fields of a response that follows from several Decisions, one after the other.
#[must_use]
pub fn headers_of_all(decisions: &[&Decision], which: Headers) -> Vec<(&'static str, String)> {
    headers_of_route(&[], decisions, which)
}

/// The header fields of a response of a route with these policies. A refusal may have left some of them unasked, but
/// all are in `RateLimit-Policy`, so that its text is the same on every response of the route.
#[must_use]
pub fn headers_of_route(policies: &[&Policy], decisions: &[&Decision], which: Headers) -> Vec<(&'static str, String)> {
    let mut fields = Vec::with_capacity(6);
    if which != Headers::Off {
        let announced = announced(decisions);
        if which.has_ietf() {
            let policies = policy_list(policies, decisions);
            if !policies.is_empty() {
                fields.push((POLICY, policies));
            }
            if !announced.is_empty() {
                fields.push((LIMIT, limit_list(&announced)));
            }
        }
        if which.has_legacy()
            && let Some(decision) = binding(&announced)
        {
            fields.push((OLD_LIMIT, decision.limit().to_string()));
            fields.push((OLD_REMAINING, decision.remaining().to_string()));
            fields.push((OLD_RESET, reset_at(decision).to_string()));
        }
    }
    if let Some(refusal) = decisions.iter().find(|decision| !decision.allowed())
        && let Some(wait) = retry_after(refusal)
    {
        fields.push((RETRY_AFTER, wait.to_string()));
    }
    fields
}

/// The seconds until more units of the limit that binds are available, which the fields announce as `t`. After a
/// refusal, the seconds until the same request is admitted. `None` if waiting does not help, if nothing of the limit is
/// used, and if units are held, because they may come back at any moment.
#[must_use]
pub fn more_after(decision: &Decision) -> Option<u64> {
    if !ietf::has_window(decision.binding_limit()) {
        return None;
    }
    if decision.allowed() { decision.more_after().map(|more| seconds(more).max(1)) } else { retry_after(decision) }
}

/// The parts of the fields that depend on the policy alone. A host writes the numbers of a Decision after them itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// Its items of `RateLimit-Policy`.
    pub items: String,
    /// How each limit is announced when it is the one that binds.
    pub limits: Vec<Announced>,
}

/// How one limit is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announced {
    /// Its name, as in problem documents.
    pub name: String,
    /// The text of its `RateLimit` item before the number of units that are left.
    pub before_left: String,
    /// The text between that number and the seconds of [`more_after`], if there are some. `None` for a `concurrency` limit.
    pub before_more: Option<&'static str>,
}

/// The announcement of a policy. `None` for a policy in shadow.
#[must_use]
pub fn announcement(policy: &Policy) -> Option<Announcement> {
    if policy.options().shadow {
        return None;
    }
    let announced = |index: usize| {
        let (before_left, before_more) = ietf::around_numbers(policy, index);
        Announced { name: ietf::limit_name(policy, index), before_left, before_more }
    };
    let limits = (0..policy.limits().len()).map(announced).collect();
    Some(Announcement { items: ietf::texts(policy).items.to_string(), limits })
}

/// The Decisions about single policies.
fn entries<'a>(decisions: &[&'a Decision]) -> impl Iterator<Item = &'a Decision> {
    decisions.iter().flat_map(|decision| decision.entries())
}

/// The items of all limits of these policies and of the asked policies, each policy once. An asked policy replaces the
/// one of the same name, because a reload may have changed it.
fn policy_list(policies: &[&Policy], decisions: &[&Decision]) -> String {
    let mut listed: Vec<&Policy> = policies.to_vec();
    for entry in entries(decisions) {
        let asked = entry.asked_policy();
        match listed.iter_mut().find(|known| known.name() == asked.name()) {
            Some(known) => *known = asked,
            None => listed.push(asked),
        }
    }
    let mut list = String::new();
    for policy in listed.iter().filter(|policy| !policy.options().shadow) {
        let items = &ietf::texts(policy).items;
        if !list.is_empty() {
            list.push_str(ietf::SEPARATOR);
        }
        list.push_str(items);
    }
    list
}

/// For each Decision, the item of the limit that binds.
fn limit_list(announced: &[&Decision]) -> String {
    let mut list = String::with_capacity(32 * announced.len());
    for decision in announced {
        if !list.is_empty() {
            list.push_str(ietf::SEPARATOR);
        }
        ietf::limit_item(&mut list, decision.asked_policy(), decision, more_after(decision));
    }
    list
}

/// One Decision for each policy with announced numbers. If a policy was asked about two keys, the one nearer to a refusal.
fn announced<'a>(decisions: &[&'a Decision]) -> Vec<&'a Decision> {
    let mut announced: Vec<&Decision> = Vec::with_capacity(decisions.len());
    for entry in entries(decisions).filter(|entry| !entry.in_shadow() && !entry.unavailable()) {
        match announced.iter_mut().find(|known| known.policy() == entry.policy()) {
            Some(known) => *known = binding(&[*known, entry]).unwrap_or(entry),
            None => announced.push(entry),
        }
    }
    announced
}

/// The Decision that binds: the first refusal, else the one with the smallest share left.
fn binding<'a>(decisions: &[&'a Decision]) -> Option<&'a Decision> {
    let refusal = decisions.iter().find(|decision| !decision.allowed());
    refusal.or_else(|| decisions.iter().min_by(|a, b| a.by_what_is_left(b))).copied()
}

/// Unix seconds, rounded up. The moment is stored, so it does not change between calls. If a block ends later, its end
/// counts.
fn reset_at(decision: &Decision) -> u64 {
    let resets = decision.reset_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    let admits = decision.retry_after().map_or(Duration::ZERO, |wait| decision.at() + wait);
    seconds(if decision.allowed() { resets } else { resets.max(admits) })
}
