//! Numbers of tokens: the charge of a call, and its actual cost.

use super::MOST;
use super::learned::{Learned, LearnedTable};
use super::request::LlmRequest;
use super::usage::TokenUsage;

/// The tokens of an answer if the request names no bound and no calls were seen yet.
pub const DEFAULT_OUTPUT: u64 = 1_024;
/// The scale of tokens per byte: `SCALE` is one token for each byte.
const SCALE: u64 = 1 << 16;
/// The first rate: a token for each four bytes.
const START: u64 = SCALE / 4;

/// When a service counts the tokens of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputRule {
    /// When the request arrives: the service counts the bound in it, whatever the answer uses later.
    Bound,
    /// As they are used.
    Used,
}

/// The rules by which a service counts tokens for its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TokenRules {
    /// When the tokens of an answer count.
    pub output: OutputRule,
    /// True if tokens that the model reads from a cache count.
    pub cached: bool,
}

impl TokenRules {
    /// As OpenAI counts: the bound of the answer on arrival, and the input with its cached part.
    pub const OPENAI: Self = Self { output: OutputRule::Bound, cached: true };
    /// As Anthropic counts: the answer as it is used, and the input without the part that came from a cache.
    pub const ANTHROPIC: Self = Self { output: OutputRule::Used, cached: false };

    /// These, with another rule for answers.
    #[must_use]
    pub const fn output(mut self, output: OutputRule) -> Self {
        self.output = output;
        self
    }
}

/// The tokens of a call. `None` marks an unknown number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TokenCount {
    /// The tokens that the model reads.
    pub input: Option<u64>,
    /// The tokens of its answer.
    pub output: Option<u64>,
}

impl TokenCount {
    /// The sum, if both are known.
    #[must_use]
    pub fn sum(self) -> Option<u64> {
        Some(self.input?.saturating_add(self.output?).min(MOST))
    }
}

/// The charge of a call. [`TokenEstimator::settle`] needs it when the call has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenEstimate {
    /// The charged tokens of the request.
    pub input: u64,
    /// The charged tokens of the answer.
    pub output: u64,
    request: LlmRequest,
}

impl TokenEstimate {
    /// The charged tokens.
    #[must_use]
    pub fn count(&self) -> TokenCount {
        TokenCount { input: Some(self.input), output: Some(self.output) }
    }

    /// The request.
    #[must_use]
    pub const fn request(&self) -> &LlmRequest {
        &self.request
    }
}

/// Estimates the cost of calls, and learns from their actual cost. Its memory is bounded.
///
/// ```
/// use tidegate::http::{LlmRequest, TokenEstimator, TokenRules, UsageReader};
///
/// let mut estimator = TokenEstimator::new(TokenRules::OPENAI);
/// let body = br#"{"model": "m", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 100}"#;
/// let request = LlmRequest::read(None, body).expect("a request for a model");
/// let estimate = estimator.estimate(request);
/// assert_eq!((estimate.input, estimate.output), (10, 100));
///
/// let mut response = UsageReader::default();
/// response.feed(br#"{"usage": {"prompt_tokens": 14, "completion_tokens": 2}}"#);
/// let cost = estimator.settle(&estimate, response.usage().unwrap_or_default());
/// assert_eq!(cost.sum(), Some(114), "OpenAI has counted the 100 tokens on arrival");
/// ```
#[derive(Debug, Clone)]
pub struct TokenEstimator {
    rules: TokenRules,
    default_output: u64,
    learned: LearnedTable,
}

impl TokenEstimator {
    /// An estimator for a service that counts by these rules.
    #[must_use]
    pub fn new(rules: TokenRules) -> Self {
        Self { rules, default_output: DEFAULT_OUTPUT, learned: LearnedTable::default() }
    }

    /// Sets the tokens of an answer if the request names no bound and no calls were seen yet.
    #[must_use]
    pub fn default_output(mut self, tokens: u64) -> Self {
        self.default_output = tokens.min(MOST);
        self
    }

    /// Estimates the charge of a call.
    pub fn estimate(&mut self, request: LlmRequest) -> TokenEstimate {
        let learned = self.learned.estimate(request.model(), Learned::Input, START);
        let texts = match self.rules.output {
            // Such a service counts the input on arrival by its own rule, even if the model reads fewer tokens later.
            OutputRule::Bound => learned.max(START),
            OutputRule::Used => learned,
        };
        let input = tokens(request.bytes(), texts).saturating_add(request.media_tokens()).min(MOST);
        let output = match (request.bound(), self.rules.output) {
            _ if !request.is_answered() => 0,
            (Some(bound), OutputRule::Bound) => bound,
            (bound, _) => {
                let most = bound.unwrap_or(MOST);
                let start = self.default_output.min(most);
                self.learned.estimate(request.model(), answers(&request), start).min(most)
            }
        };
        TokenEstimate { input, output, request }
    }

    /// The actual cost of a call, from the status and the usage of its response. `None` leaves the charge. An error
    /// without a usage has used no tokens.
    pub fn settle_response(
        &mut self,
        estimate: &TokenEstimate,
        status: u16,
        usage: Option<TokenUsage>,
    ) -> Option<TokenCount> {
        match usage {
            Some(usage) => Some(self.settle(estimate, usage)),
            None if status >= 400 => Some(TokenCount { input: Some(0), output: Some(0) }),
            None => None,
        }
    }

    /// The actual cost of a call with this usage. The estimator learns from it.
    pub fn settle(&mut self, estimate: &TokenEstimate, usage: TokenUsage) -> TokenCount {
        let request = &estimate.request;
        let cached = if self.rules.cached { 0 } else { usage.cached };
        let input = usage.input.map(|input| input.saturating_sub(cached));
        let output = usage.output.or((!request.is_answered()).then_some(0));
        if let Some(input) = input.filter(|_| request.is_whole()) {
            // A token has at least a byte, so tokens above that were not in the request.
            let texts = input.saturating_mul(SCALE).div_ceil(request.bytes().max(1)).min(SCALE);
            self.learned.add(request.model(), Learned::Input, texts);
        }
        if let Some(output) = output.filter(|_| request.is_answered()) {
            self.learned.add(request.model(), answers(request), output);
        }
        match self.rules.output {
            OutputRule::Used => TokenCount { input, output },
            OutputRule::Bound => {
                let arrived = tokens(request.bytes(), START);
                TokenCount { input: input.map(|input| input.max(arrived)), output: request.bound().or(output) }
            }
        }
    }
}

/// The kind of calls with answers like those of this request.
fn answers(request: &LlmRequest) -> Learned {
    Learned::Output(request.bound().map_or(0, |bound| u64::BITS - bound.leading_zeros()))
}

/// The tokens of so many bytes, with `each` tokens per byte, in the scale of [`SCALE`].
fn tokens(bytes: u64, each: u64) -> u64 {
    u64::try_from((u128::from(bytes) * u128::from(each)).div_ceil(u128::from(SCALE))).unwrap_or(MOST)
}
