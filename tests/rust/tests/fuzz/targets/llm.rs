//! A call of a model: `path \n a line of the request's body \n the response`. Numbers stay below 2^53, the charge covers the
//! tokens that OpenAI counts, and the usage is the same however a response is cut. For JSON a parser finds the same usage.

use serde_json::Value;
use tidegate::http::{LlmRequest, TokenEstimator, TokenRules, TokenUsage, UsageReader};

use crate::fuzz::outcome::magnitude;

pub(crate) const WORDS: &[&str] = &[
    "\n",
    "\n\n",
    "\r\n",
    "data: ",
    "event: message_delta",
    "[DONE]",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/completions",
    "/v1/messages",
    "/count_tokens",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "\\",
    ": ",
    "null",
    "\"model\": \"m\"",
    "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]",
    "\"messages\": []",
    "\"input\": [1, 2]",
    "\"system\": \"s\"",
    "\"prompt\": {\"id\": \"p\"}",
    "\"tools\": [{}]",
    "\"max_tokens\": 100",
    "\"max_completion_tokens\": 9007199254740991",
    "\"max_output_tokens\": 18446744073709551615",
    "\"n\": 3",
    "\"type\": \"image\"",
    "\"type\": \"document\"",
    "\"source\": {\"type\": \"text\", \"data\": \"t\"}",
    "\"image_url\": \"data:image/png;base64,AAAA\"",
    "\"detail\": \"low\"",
    "\"usage\": ",
    "{\"prompt_tokens\": 9, \"completion_tokens\": 2}",
    "{\"input_tokens\": 9, \"cache_read_input_tokens\": 7, \"output_tokens\": 2}",
    "\"message\": {",
    "\"response\": {",
    "\u{ff}",
    "-1",
    "1e308",
];

const MOST: u64 = (1 << 53) - 1;

fn read(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Option<TokenUsage> {
    let mut reader = UsageReader::default();
    chunks.into_iter().for_each(|chunk| reader.feed(chunk.as_ref()));
    reader.usage()
}

/// The usage that a parser of JSON finds, if the response is one object with input and output.
fn plainly(response: &Value) -> Option<(u64, u64)> {
    let usage = response.get("usage")?;
    let number = |names: [&str; 2]| names.iter().find_map(|name| usage.get(*name)?.as_u64());
    Some((number(["prompt_tokens", "input_tokens"])?, number(["completion_tokens", "output_tokens"])?))
}

pub(crate) fn run(input: &[u8]) -> String {
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let path = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let path = (!path.is_empty()).then_some(&*path);
    let body = parts.next().unwrap_or_default();
    let response = parts.next().unwrap_or_default();
    let usage = read([response]);
    if let Some(usage) = usage {
        assert!(
            usage.input.into_iter().chain(usage.output).chain([usage.cached]).all(|tokens| tokens <= MOST),
            "{usage:?}"
        );
        assert!(usage.cached <= usage.input.unwrap_or(0), "{usage:?}");
    }
    for size in [1, 3, 16] {
        assert_eq!(read(response.chunks(size)), usage, "in chunks of {size}");
    }
    let once = |name: &[u8]| response.windows(name.len()).filter(|window| *window == name).count() == 1;
    if let Ok(whole @ Value::Object(_)) = serde_json::from_slice(response)
        // If a field is written twice, the last one counts for a parser, and the last number for the reader.
        && once(b"\"usage\"")
        && !response.contains(&b'\\')
        && let Some((read, answered)) = plainly(&whole)
    {
        let usage = usage.expect("a parser finds it");
        assert_eq!(usage.output, Some(answered.min(MOST)), "{whole}");
        assert!(usage.input >= Some(read.min(MOST)), "{whole}");
    }
    let request = LlmRequest::read(path, body);
    let mut texts = 0;
    let again = LlmRequest::read_texts(path, body, &mut |text| texts += text.len() as u64);
    assert_eq!(again, request);
    let Some(request) = request else { return format!("none {:?}", usage.map(|usage| usage.output.is_some())) };
    // A request counts at least the bytes of its texts. It may count more, for example for a schema.
    assert!(request.bytes() >= texts, "{request:?}");
    assert!(request.bound().is_none_or(|bound| (1..=MOST).contains(&bound)), "{request:?}");
    for rules in [TokenRules::OPENAI, TokenRules::ANTHROPIC] {
        let mut estimator = TokenEstimator::new(rules);
        let estimate = estimator.estimate(request.clone());
        assert!(estimate.input <= MOST && estimate.output <= MOST, "{estimate:?}");
        assert!(estimate.input >= request.bytes() / 4, "{estimate:?}");
        assert!(request.is_answered() || estimate.output == 0, "{estimate:?}");
        if rules == TokenRules::OPENAI && request.is_answered() {
            assert!(request.bound().is_none_or(|bound| estimate.output == bound), "{estimate:?}");
        }
        for _ in 0..3 {
            let cost = estimator.settle(&estimate, usage.unwrap_or_default());
            assert!(
                cost.input.into_iter().chain(cost.output).chain(cost.sum()).all(|tokens| tokens <= MOST),
                "{cost:?}"
            );
            let counted = |tokens: Option<u64>| tokens.is_none_or(|tokens| tokens >= request.bytes() / 4);
            assert!(rules != TokenRules::OPENAI || counted(cost.input), "{cost:?}");
        }
        let learned = estimator.estimate(request.clone());
        assert!(request.bound().is_none_or(|bound| learned.output <= bound), "{learned:?}");
        assert!(learned.input <= MOST && learned.output <= MOST, "{learned:?}");
    }
    let size = |tokens: Option<u64>| tokens.map(magnitude);
    let said = usage.map(|usage| (size(usage.input), size(usage.output), usage.cached > 0));
    format!("{} {:?} {} {said:?}", request.api().name(), size(request.bound()), magnitude(request.media_tokens()))
}
