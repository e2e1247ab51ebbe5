//! Reads the JSON of a refusal.

use std::time::Duration;

use serde_json::Value;

use super::ResponseWait;
use super::waits::WaitReader;

/// The meaning of a value in the body.
enum BodySays {
    /// The wait of the request, in seconds or as a text.
    Retry,
    /// True if the wait concerns every request.
    Global,
    /// A sign of a refusal: these words are in the value. The time is the wait, if the response names none.
    Refusal(&'static str, Duration),
}

/// The path of a value, and its meaning. `[]` is each element of a list.
const BODIES: &[(&[&str], BodySays)] = &[
    // Discord.
    (&["retry_after"], BodySays::Retry),
    (&["global"], BodySays::Global),
    // Telegram.
    (&["parameters", "retry_after"], BodySays::Retry),
    // `google.rpc.RetryInfo`: no other detail has this name. A stream of Gemini answers with a list.
    (&["error", "details", "[]", "retryDelay"], BodySays::Retry),
    (&["[]", "error", "details", "[]", "retryDelay"], BodySays::Retry),
    (&["details", "[]", "retryDelay"], BodySays::Retry),
    // GitHub asks for a minute if it names no wait.
    (&["message"], BodySays::Refusal("secondary rate limit", Duration::from_secs(60))),
];

/// Returns the number of values that were not believed.
pub(super) fn read(body: &[u8], waits: &WaitReader, response: &mut ResponseWait) -> u32 {
    let Ok(json) = serde_json::from_slice::<Value>(body) else { return 0 };
    let mut ignored = 0;
    for (path, says) in BODIES {
        each(&json, path, &mut |value| match says {
            BodySays::Retry => {
                let wait = match value {
                    Value::Number(number) => waits.of_text(&number.to_string()),
                    Value::String(text) => waits.of_text(text.trim()),
                    _ => None,
                };
                ignored += u32::from(response.says_wait(wait).is_none());
            }
            BodySays::Global if *value == Value::Bool(true) => drop(response.says_scope("global")),
            BodySays::Refusal(words, wait) if value.as_str().is_some_and(|text| text.contains(words)) => {
                response.refused(*wait);
            }
            BodySays::Global | BodySays::Refusal(..) => {}
        });
    }
    ignored
}

/// Calls `call` with each value at the path that is not null.
fn each(json: &Value, path: &[&str], call: &mut impl FnMut(&Value)) {
    match (path, json) {
        ([], Value::Null) => {}
        ([], value) => call(value),
        (["[]", rest @ ..], Value::Array(list)) => list.iter().for_each(|value| each(value, rest, call)),
        ([key, rest @ ..], Value::Object(fields)) => {
            if let Some(value) = fields.get(*key) {
                each(value, rest, call);
            }
        }
        _ => {}
    }
}
