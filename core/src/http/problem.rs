//! The body of a refusal: `application/problem+json`. It names policies, never keys.

use super::{retry_after, status};
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

/// The problem that a refusal is.
#[must_use]
pub fn problem(decision: &Decision) -> String {
    let unavailable = decision.unavailable();
    let (kind, title) = if unavailable { CAPACITY } else { QUOTA };
    let detail = match retry_after(decision) {
        None => "This request asks for more than is ever allowed.".to_owned(),
        Some(1) => "Try again in 1 second.".to_owned(),
        Some(wait) => format!("Try again in {wait} seconds."),
    };
    let status = status(decision);
    let mut body = format!(r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"{detail}""#);
    if !unavailable {
        let names = serde_json::Value::from(violated(decision));
        body += &format!(r#","violated-policies":{names}"#);
    }
    body.push('}');
    body
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
