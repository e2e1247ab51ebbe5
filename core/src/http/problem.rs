//! The body of a refusal: `application/problem+json`. It names policies, never keys.

use super::ietf::limit_name;
use super::retry_after;
use crate::decision::Decision;
use crate::policy::Policy;

/// The media type of [`problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

pub(super) const QUOTA: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded",
);
const ABNORMAL: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
    "Request cannot be satisfied due to detection of abnormal request pattern",
);
const CAPACITY: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    "Request cannot be satisfied due to temporary server capacity constraints",
);

/// A refusal as numbers and names, for hosts with their own Decision type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// True if the store failed.
    pub unavailable: bool,
    /// Whole seconds to wait. `None` is for ever.
    pub wait: Option<u64>,
    /// The names of the limits that refused, each once. If policies could not be asked, the names of all their limits.
    pub policies: Vec<String>,
    /// True if a block after repeated denials refused.
    pub abnormal: bool,
}

impl Refusal {
    /// A refusal by a limit, or because the store failed.
    #[must_use]
    pub const fn new(unavailable: bool, wait: Option<u64>, policies: Vec<String>) -> Self {
        Self { unavailable, wait, policies, abnormal: false }
    }

    /// Sets whether a block after repeated denials refused.
    #[must_use]
    pub const fn abnormal(mut self, abnormal: bool) -> Self {
        self.abnormal = abnormal;
        self
    }

    /// The refusal of a Decision.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        Self::new(decision.unavailable(), retry_after(decision), violated(decision)).abnormal(decision.abnormal())
    }

    /// The refusal of a request if the store failed, so that these policies could not be asked.
    #[must_use]
    pub fn unavailable(policies: &[&Policy]) -> Self {
        let limits =
            |policy: &&Policy| (0..policy.limits().len()).map(|index| limit_name(policy, index)).collect::<Vec<_>>();
        let announced = policies.iter().filter(|policy| !policy.options().shadow);
        Self::new(true, Some(1), announced.flat_map(limits).collect())
    }

    /// 429 when a quota is exceeded, 503 when the store failed.
    #[must_use]
    pub const fn status(&self) -> u16 {
        if self.unavailable { 503 } else { 429 }
    }

    /// The body of the response.
    #[must_use]
    pub fn problem(&self) -> String {
        let (kind, title) = match (self.unavailable, self.abnormal) {
            (true, _) => CAPACITY,
            (false, true) => ABNORMAL,
            (false, false) => QUOTA,
        };
        let detail = match self.wait {
            None => "This request asks for more than is ever allowed.".to_owned(),
            Some(1) => "Try again in 1 second.".to_owned(),
            Some(wait) => format!("Try again in {wait} seconds."),
        };
        let status = self.status();
        let mut body = format!(r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"{detail}""#);
        let names = serde_json::Value::from(&self.policies[..]);
        body += &format!(r#","violated-policies":{names}}}"#);
        body
    }
}

/// The problem document of a refusal.
#[must_use]
pub fn problem(decision: &Decision) -> String {
    Refusal::of(decision).problem()
}

/// The names of the limits that refused, as the fields have them, each once. A block belongs to the limit that binds.
/// If the store failed, no limit could be asked, so all are named.
fn violated(decision: &Decision) -> Vec<String> {
    let mut names = Vec::with_capacity(1);
    for entry in decision.entries().iter().filter(|entry| !entry.allowed()) {
        let policy = entry.asked_policy();
        let exceeded: Vec<bool> = entry.limits().map(|limit| limit.exceeded).collect();
        let has_refused = |index: &usize| entry.unavailable() || exceeded.get(*index) == Some(&true);
        let mut refused: Vec<usize> = (0..policy.limits().len()).filter(has_refused).collect();
        if refused.is_empty() {
            refused.push(entry.binding_index());
        }
        for name in refused.into_iter().map(|index| limit_name(policy, index)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}
