//! The description of a refusal in an OpenAPI document: its fields and its problem.

use serde_json::{Map, Value, json};

use super::field_names::{LIMIT, OLD_LIMIT, OLD_REMAINING, OLD_RESET, POLICY, RETRY_AFTER};
use super::headers::Headers;
use super::problem::{MEDIA_TYPE, QUOTA};

/// The name of the schema of the problem.
const SCHEMA: &str = "QuotaExceededProblem";

/// The response object of OpenAPI 3 for a request that a limit refuses, with the status 429, as JSON. It has the fields
/// that `headers` chooses, `Retry-After`, and the schema of the problem. The `title` of the schema is a name for it.
#[must_use]
pub fn openapi_response(headers: Headers) -> String {
    let integer = || json!({"type": "integer", "minimum": 0});
    let text = || json!({"type": "string"});
    let mut fields = Map::new();
    let mut field = |name: &str, description: &str, schema: Value| {
        fields.insert(name.to_owned(), json!({"description": description, "schema": schema}));
    };
    if headers.has_ietf() {
        field(POLICY, "Every limit of the route: its quota, and its window in seconds.", text());
        field(LIMIT, "The limit that binds: the units that are left, and the seconds until there are more.", text());
    }
    if headers.has_legacy() {
        field(OLD_LIMIT, "The quota of the limit that binds.", integer());
        field(OLD_REMAINING, "The units that are left of it.", integer());
        field(OLD_RESET, "The moment at which the limit is as if it were unused, in seconds since 1970.", integer());
    }
    let wait = "The seconds after which the same request is admitted. It is missing if no wait helps.";
    field(RETRY_AFTER, wait, integer());
    let (kind, title) = QUOTA;
    let schema = json!({
        "title": SCHEMA,
        "type": "object",
        "required": ["type", "title", "status", "detail", "violated-policies"],
        "properties": {
            "type": {"type": "string", "format": "uri", "example": kind},
            "title": {"type": "string", "example": title},
            "status": {"type": "integer", "example": 429},
            "detail": {"type": "string", "example": "Try again in 30 seconds."},
            "violated-policies": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The limits that refused, as the fields name them.",
            },
        },
    });
    let content = json!({MEDIA_TYPE: {"schema": schema}});
    json!({"description": "Too Many Requests", "headers": fields, "content": content}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limiter;
    use crate::http::{headers, problem};

    fn keys(value: &Value) -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn it_lists_the_fields_and_the_members_that_a_refusal_has() {
        let limiter = Limiter::builder().build().expect("a limiter");
        limiter.check("1/minute", "alice").expect("an answer");
        let refused = limiter.check("1/minute", "alice").expect("an answer");
        for choice in Headers::ALL {
            let said: Value = serde_json::from_str(&openapi_response(choice)).expect("JSON");
            let mut sent: Vec<&str> = headers(&refused, choice).into_iter().map(|(name, _)| name).collect();
            sent.sort_unstable();
            assert_eq!(keys(&said["headers"]), sent, "{}", choice.name());
            let schema = &said["content"][MEDIA_TYPE]["schema"];
            let body: Value = serde_json::from_str(&problem(&refused)).expect("JSON");
            assert_eq!(keys(&schema["properties"]), keys(&body));
            assert_eq!(schema["required"].as_array().expect("names").len(), keys(&body).len());
        }
    }
}
