//! The token costs of calls to models, for `lib/llm.ts`.

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use tidegate::http::{LlmRequest, OutputRule, TokenCount, TokenRules};

/// The charge of a call.
#[napi]
pub struct TokenEstimate {
    inner: tidegate::http::TokenEstimate,
}

/// Tokens of a call. A missing number is not known.
#[napi(object)]
pub struct Tokens {
    /// The tokens that the model reads.
    pub input: Option<f64>,
    /// The tokens that it answers.
    pub output: Option<f64>,
}

impl From<TokenCount> for Tokens {
    fn from(tokens: TokenCount) -> Self {
        let number = |tokens: u64| tokens as f64;
        Self { input: tokens.input.map(number), output: tokens.output.map(number) }
    }
}

#[napi]
impl TokenEstimate {
    /// The tokens that are charged.
    #[napi(getter, catch_unwind)]
    pub fn tokens(&self) -> Tokens {
        self.inner.count().into()
    }
}

/// Estimates the calls of a preset, and learns from them.
#[napi]
pub struct TokenEstimator {
    inner: tidegate::http::TokenEstimator,
}

#[napi]
impl TokenEstimator {
    /// An estimator for the service of a preset. `counts_used` is true if the service counts the tokens of an answer as they are used.
    #[napi(factory, catch_unwind)]
    pub fn of(preset: String, counts_used: Option<bool>, default_output: Option<f64>) -> Self {
        let rules = if preset == "anthropic" { TokenRules::ANTHROPIC } else { TokenRules::OPENAI };
        let rules = match counts_used {
            None => rules,
            Some(true) => rules.output(OutputRule::Used),
            Some(false) => rules.output(OutputRule::Bound),
        };
        let estimator = tidegate::http::TokenEstimator::new(rules);
        let tokens = default_output.map(|tokens| tokens as u64);
        Self { inner: tokens.into_iter().fold(estimator, tidegate::http::TokenEstimator::default_output) }
    }

    /// The charge of the request to this path with this body. Nothing if it is not for a model. `text_tokens` is the count of a tokenizer
    /// for its texts.
    #[napi(catch_unwind)]
    pub fn estimate(&mut self, path: String, body: Uint8Array, text_tokens: Option<f64>) -> Option<TokenEstimate> {
        let mut request = LlmRequest::read(Some(&path), &body)?;
        if let Some(tokens) = text_tokens {
            request = request.with_text_tokens(tokens as u64);
        }
        Some(TokenEstimate { inner: self.inner.estimate(request) })
    }

    /// The actual cost of a call, from its response. Nothing if the response has no usage and the call was served.
    #[napi(catch_unwind)]
    pub fn settle(&mut self, estimate: &TokenEstimate, response: &UsageReader, status: u32) -> Option<Tokens> {
        let status = u16::try_from(status).unwrap_or(u16::MAX);
        self.inner.settle_response(&estimate.inner, status, response.inner.usage()).map(Tokens::from)
    }
}

/// The texts of a request for a model, for a tokenizer.
#[napi(catch_unwind)]
pub fn texts_of_request(path: String, body: Uint8Array) -> Vec<String> {
    let mut texts = Vec::new();
    let _ = LlmRequest::read_texts(Some(&path), &body, &mut |text| texts.push(text.to_owned()));
    texts
}

/// Reads the usage out of a response that comes in chunks.
#[napi]
#[derive(Default)]
pub struct UsageReader {
    inner: tidegate::http::UsageReader,
}

#[napi]
impl UsageReader {
    /// A reader of another response.
    #[napi(factory, catch_unwind)]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads the next chunk.
    #[napi(catch_unwind)]
    pub fn feed(&mut self, chunk: Uint8Array) {
        self.inner.feed(&chunk);
    }
}
