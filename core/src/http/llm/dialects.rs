//! The table of the requests that are read: how each is recognized, and the meaning of its fields.

use serde_json::{Map, Value};

/// The API that a request uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LlmApi {
    /// Chat completions of OpenAI, and of all who copy them.
    ChatCompletions,
    /// Completions of OpenAI, without a chat.
    Completions,
    /// Responses of OpenAI.
    Responses,
    /// Embeddings of OpenAI.
    Embeddings,
    /// Messages of Anthropic.
    Messages,
}

impl LlmApi {
    /// Its name in Python and TypeScript, and in tests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat-completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
        }
    }
}

/// A line of the table.
pub(super) struct LlmDialect {
    pub(super) api: LlmApi,
    /// The end of the path of its address.
    path: &'static str,
    /// For a request with an unknown path: it must have one of the first fields, and the other field.
    signs: (&'static [&'static str], &'static str),
    /// Fields with the input of the model: texts, or messages of them.
    pub(super) texts: &'static [&'static str],
    /// Fields that the model reads as they are written: tools, and schemas of the answer.
    pub(super) schemas: &'static [&'static str],
    /// Fields with the most tokens of an answer. The first one that is there counts.
    pub(super) bounds: &'static [&'static str],
    /// Fields with the number of answers.
    pub(super) answers: &'static [&'static str],
    /// True if the answer consists of tokens.
    pub(super) is_answered: bool,
    /// The bytes that a service adds to a request with tools.
    pub(super) tools_bytes: u64,
}

/// The first line that fits counts.
const LLM_DIALECTS: &[LlmDialect] = &[
    LlmDialect {
        api: LlmApi::ChatCompletions,
        path: "/chat/completions",
        signs: (&["max_completion_tokens", "response_format", "stream_options", "n", "functions"], "messages"),
        texts: &["messages", "prediction"],
        schemas: &["tools", "functions", "response_format"],
        bounds: &["max_completion_tokens", "max_tokens"],
        answers: &["n"],
        is_answered: true,
        tools_bytes: 64,
    },
    LlmDialect {
        api: LlmApi::Messages,
        path: "/messages",
        signs: (&["system", "anthropic_version", "stop_sequences", "thinking"], "messages"),
        texts: &["system", "messages"],
        schemas: &["tools", "output_format", "output_config"],
        bounds: &["max_tokens"],
        answers: &[],
        is_answered: true,
        // The system prompt for tools: 346 tokens of most models.
        tools_bytes: 1_400,
    },
    LlmDialect {
        api: LlmApi::Embeddings,
        path: "/embeddings",
        signs: (&["encoding_format", "dimensions"], "input"),
        texts: &["input"],
        schemas: &[],
        bounds: &[],
        answers: &[],
        is_answered: false,
        tools_bytes: 0,
    },
    LlmDialect {
        api: LlmApi::Responses,
        path: "/responses",
        signs: (&["model"], "input"),
        texts: &["instructions", "input", "prompt"],
        schemas: &["tools", "text"],
        bounds: &["max_output_tokens"],
        answers: &[],
        is_answered: true,
        tools_bytes: 64,
    },
    LlmDialect {
        api: LlmApi::Completions,
        path: "/completions",
        signs: (&["model"], "prompt"),
        texts: &["prompt", "suffix"],
        schemas: &[],
        bounds: &["max_tokens"],
        answers: &["n", "best_of"],
        is_answered: true,
        tools_bytes: 0,
    },
];

/// If neither the path nor the fields decide, `messages` are a chat.
const CHAT: usize = 0;
/// The ends of the paths of calls that look like those of the table but use no tokens.
const OTHER_CALLS: &[&str] = &["/count_tokens"];
/// Every request for a model that has messages has one of these fields.
const MODEL_SIGNS: &[&str] = &["model", "anthropic_version", "max_tokens", "max_completion_tokens"];

/// The line for a request. A path of the table decides. Behind a gateway the path is another, and messages are
/// recognized by their fields. Other fields are too common for that, and decide only if there is no path.
pub(super) fn find(path: Option<&str>, fields: &Map<String, Value>) -> Option<&'static LlmDialect> {
    let path = path.map(|path| path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/'));
    let ends = |end: &str| path.is_some_and(|path| path.ends_with(end));
    if let Some(dialect) = LLM_DIALECTS.iter().find(|dialect| ends(dialect.path)) {
        return Some(dialect);
    }
    let has = |field: &str| fields.get(field).is_some_and(|value| !value.is_null());
    if OTHER_CALLS.iter().any(|end| ends(end))
        || path.is_some() && !(has("messages") && MODEL_SIGNS.iter().any(|sign| has(sign)))
    {
        return None;
    }
    let fits = |dialect: &&LlmDialect| has(dialect.signs.1) && dialect.signs.0.iter().any(|sign| has(sign));
    LLM_DIALECTS.iter().find(fits).or_else(|| has("messages").then_some(&LLM_DIALECTS[CHAT]))
}

/// The cost of a part of a message that is not text.
pub(super) struct Media {
    /// The `type` of the part.
    types: &'static [&'static str],
    /// The tokens of a part, at least.
    pub(super) tokens: u64,
    /// The number of bytes of the part, as base64 in the request, that cost a token. 0 if its size does not count.
    pub(super) bytes: u64,
}

const MEDIA: &[Media] = &[
    // 8 tiles of OpenAI and a base are 1,445 tokens. Anthropic scales to 1.15 megapixels, which are 1,600.
    Media { types: &["image", "image_url", "input_image", "computer_screenshot"], tokens: IMAGE_TOKENS, bytes: 0 },
    // Ten tokens a second. A second of speech has more than 10 kB.
    Media { types: &["input_audio", "audio"], tokens: 100, bytes: 1_024 },
    // A page costs up to 3,000 tokens, and an image of it.
    Media { types: &["document", "file", "input_file"], tokens: IMAGE_TOKENS, bytes: 32 },
];

/// The tokens of an image.
pub(super) const IMAGE_TOKENS: u64 = 1_600;
/// The tokens of an image that is asked for with low detail.
pub(super) const LOW_DETAIL_TOKENS: u64 = 85;

/// The medium of a part with this `type`. `None` if it is text.
pub(super) fn media(kind: &str) -> Option<&'static Media> {
    MEDIA.iter().find(|media| media.types.contains(&kind))
}

/// Fields of messages and their parts that no model reads.
pub(super) const UNREAD: &[&str] = &[
    "role",
    "type",
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "cache_control",
    "signature",
    "status",
    "media_type",
    "detail",
];
/// The fields of a request that name earlier messages. The service keeps these messages, and the model reads them.
pub(super) const KEPT: &[&str] = &["previous_response_id", "conversation"];
