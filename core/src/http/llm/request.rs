//! Reads a request for a model: the size of its input, and the bound of its answer.

use serde_json::{Map, Value};

use super::MOST;
use super::dialects::{self, IMAGE_TOKENS, KEPT, LOW_DETAIL_TOKENS, LlmApi, LlmDialect, UNREAD};

/// The longest body of a request that is read, in bytes. No service here takes a longer one.
pub const MAX_LLM_BODY: usize = 32 * 1_024 * 1_024;
/// The bytes that a message has beside its texts: about four tokens.
const MESSAGE_BYTES: u64 = 16;
/// The bytes that a request has beside its messages.
const REQUEST_BYTES: u64 = 12;
/// The bytes of a token that is given without its text.
const TOKEN_BYTES: u64 = 4;

/// A request for a model, as far as it determines the cost.
///
/// ```
/// use tidegate::http::LlmRequest;
///
/// let body = br#"{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20, "n": 2}"#;
/// let request = LlmRequest::read(Some("/v1/chat/completions"), body).expect("a request for a model");
/// assert_eq!(request.bound(), Some(40));
/// assert!(LlmRequest::read(Some("/v1/models"), b"").is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LlmRequest {
    api: LlmApi,
    model: String,
    text_bytes: u64,
    other_bytes: u64,
    media_tokens: u64,
    bound: Option<u64>,
    is_answered: bool,
    is_whole: bool,
}

impl LlmRequest {
    /// Reads the request to this path with this body. `None` for any other call: another path, a body that is not JSON,
    /// or one that is longer than [`MAX_LLM_BODY`]. Without a path the fields decide.
    #[must_use]
    pub fn read(path: Option<&str>, body: &[u8]) -> Option<Self> {
        Self::read_texts(path, body, &mut |_| {})
    }

    /// The same, and calls a tokenizer with each text that the model reads.
    #[must_use]
    pub fn read_texts(path: Option<&str>, body: &[u8], tokenizer: &mut dyn FnMut(&str)) -> Option<Self> {
        if body.len() > MAX_LLM_BODY {
            return None;
        }
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return None };
        let dialect = dialects::find(path, &fields)?;
        let mut input = Input { text_bytes: 0, other_bytes: REQUEST_BYTES, media_tokens: 0, tokenizer };
        dialect.texts.iter().filter_map(|field| fields.get(*field)).for_each(|value| input.add(value));
        for schema in dialect.schemas.iter().filter_map(|field| fields.get(*field)).filter(|value| !value.is_null()) {
            input.add_text(&schema.to_string());
        }
        if fields.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()) {
            input.other_bytes += dialect.tools_bytes;
        }
        let model = fields.get("model").and_then(Value::as_str).unwrap_or_default();
        Some(Self {
            api: dialect.api,
            model: model.to_owned(),
            text_bytes: input.text_bytes,
            other_bytes: input.other_bytes,
            media_tokens: input.media_tokens,
            bound: bound(dialect, &fields),
            is_answered: dialect.is_answered,
            is_whole: input.media_tokens == 0 && !is_continued(&fields),
        })
    }

    /// The API that it uses.
    #[must_use]
    pub const fn api(&self) -> LlmApi {
        self.api
    }

    /// The model, as the request names it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The most tokens of all answers together, if the request bounds them.
    #[must_use]
    pub const fn bound(&self) -> Option<u64> {
        self.bound
    }

    /// True if the answer consists of tokens. For embeddings it does not.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// The tokens of its images, sounds and documents.
    #[must_use]
    pub const fn media_tokens(&self) -> u64 {
        self.media_tokens
    }

    /// The bytes that a model turns into tokens: the texts, and an allowance for the parts around them.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.text_bytes.saturating_add(self.other_bytes)
    }

    /// True if the model reads only texts of this request, so that its usage shows how many bytes a token has.
    #[must_use]
    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// This request, with the number of tokens that a tokenizer counted in its texts.
    #[must_use]
    pub fn with_text_tokens(mut self, tokens: u64) -> Self {
        self.text_bytes = tokens.min(MOST).saturating_mul(TOKEN_BYTES);
        self
    }
}

/// True if the model also reads something that the service keeps: earlier messages, or a stored prompt, which is an object.
fn is_continued(fields: &Map<String, Value>) -> bool {
    let is_given = |field: &&str| fields.get(*field).is_some_and(|value| !value.is_null());
    KEPT.iter().any(is_given) || fields.get("prompt").is_some_and(Value::is_object)
}

/// The most tokens of all answers together.
fn bound(dialect: &LlmDialect, fields: &Map<String, Value>) -> Option<u64> {
    let number = |field: &&str| fields.get(*field).and_then(Value::as_u64).filter(|number| *number > 0);
    let bound = dialect.bounds.iter().find_map(number)?;
    let answers = dialect.answers.iter().filter_map(number).max().unwrap_or(1);
    Some(bound.saturating_mul(answers).min(MOST))
}

/// Counts the input of a model.
struct Input<'a> {
    text_bytes: u64,
    other_bytes: u64,
    media_tokens: u64,
    tokenizer: &'a mut dyn FnMut(&str),
}

impl Input<'_> {
    fn add_text(&mut self, text: &str) {
        self.text_bytes += text.len() as u64;
        (self.tokenizer)(text);
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) if is_data(text) => self.media_tokens += IMAGE_TOKENS,
            Value::String(text) => self.add_text(text),
            // Embeddings and completions take tokens as numbers, too.
            Value::Number(_) => self.other_bytes += TOKEN_BYTES,
            Value::Array(values) => values.iter().for_each(|value| self.add(value)),
            Value::Object(fields) => self.add_fields(fields),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn add_fields(&mut self, fields: &Map<String, Value>) {
        if fields.contains_key("role") {
            self.other_bytes += MESSAGE_BYTES;
        }
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        // A document of plain text, or of parts, is read like any other text.
        let source = fields.get("source").and_then(|source| source.get("type")).and_then(Value::as_str);
        if let Some(media) = dialects::media(kind).filter(|_| !matches!(source, Some("text" | "content"))) {
            let said = match media.bytes {
                0 if is_low_detail(fields) => LOW_DETAIL_TOKENS,
                0 => media.tokens,
                bytes => media.tokens.max(fields.values().map(length).sum::<u64>() / bytes),
            };
            self.media_tokens = self.media_tokens.saturating_add(said);
            return;
        }
        for (name, value) in fields {
            if !UNREAD.contains(&name.as_str()) {
                self.add(value);
            }
        }
    }
}

/// True if a text is a URL with its data inside.
fn is_data(text: &str) -> bool {
    text.starts_with("data:") && text.get(..64.min(text.len())).unwrap_or(text).contains(";base64,")
}

fn is_low_detail(fields: &Map<String, Value>) -> bool {
    let detail = fields.get("detail").or_else(|| fields.get("image_url").and_then(|image| image.get("detail")));
    detail.and_then(Value::as_str) == Some("low")
}

/// The bytes of all texts in a value.
fn length(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(values) => values.iter().map(length).sum(),
        Value::Object(fields) => fields.values().map(length).sum(),
        _ => 0,
    }
}
