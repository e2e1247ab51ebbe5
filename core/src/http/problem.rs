//! The body of a refusal: `application/problem+json`. It names policies, never keys.

use super::retry_after;
use crate::decision::Decision;

/// The media type of [`problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

const QUOTA: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded",
);
const CAPACITY: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
    "Request cannot be satisfied due to temporary server capacity constraints",
);

/// A refusal as numbers and names, for hosts that have a Decision type of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whether the store failed.
    pub unavailable: bool,
    /// Whole seconds to wait; `None` is for ever.
    pub wait: Option<u64>,
    /// The policies that refused, each once.
    pub policies: Vec<String>,
}

impl Refusal {
    /// The refusal of a Decision.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        let policies = violated(decision).into_iter().map(str::to_owned).collect();
        Self { unavailable: decision.unavailable(), wait: retry_after(decision), policies }
    }

    /// The refusal of a request when the store failed.
    #[must_use]
    pub const fn unavailable() -> Self {
        Self { unavailable: true, wait: Some(1), policies: Vec::new() }
    }

    /// 429 when a quota is exceeded, 503 when the store failed.
    #[must_use]
    pub const fn status(&self) -> u16 {
        if self.unavailable { 503 } else { 429 }
    }

    /// The body of the response.
    #[must_use]
    pub fn problem(&self) -> String {
        let (kind, title) = if self.unavailable { CAPACITY } else { QUOTA };
        let detail = match self.wait {
            None => "This request asks for more than is ever allowed.".to_owned(),
            Some(1) => "Try again in 1 second.".to_owned(),
            Some(wait) => format!("Try again in {wait} seconds."),
        };
        let status = self.status();
        let mut body = format!(r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"{detail}""#);
        if !self.unavailable {
            let names = serde_json::Value::from(&self.policies[..]);
            body += &format!(r#","violated-policies":{names}"#);
        }
        body.push('}');
        body
    }
}

/// The problem document of a refusal.
#[must_use]
pub fn problem(decision: &Decision) -> String {
    Refusal::of(decision).problem()
}

/// The names of the policies that refused, each once.
fn violated(decision: &Decision) -> Vec<&str> {
    let entries = match decision.decisions() {
        [] => std::slice::from_ref(decision),
        entries => entries,
    };
    let mut names = Vec::with_capacity(1);
    for entry in entries.iter().filter(|entry| !entry.allowed() && !entry.unavailable()) {
        if !names.contains(&entry.policy()) {
            names.push(entry.policy());
        }
    }
    names
}
