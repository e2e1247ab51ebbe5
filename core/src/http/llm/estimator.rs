//! Numbers of tokens: what a call is charged, and what it has cost.

use super::MOST;
use super::learned::{Learned, LearnedTable};
use super::request::LlmRequest;
use super::usage::TokenUsage;

/// The tokens of an answer whose request names no bound, until calls were seen.
pub const DEFAULT_OUTPUT: u64 = 1_024;
/// Tokens of bytes are counted in parts of this.
const SCALE: u64 = 1 << 16;
/// A token of four bytes.
const START: u64 = SCALE / 4;

/// When a service counts the tokens of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputRule {
    /// When the request arrives: the bound that it names, whatever is used then.
    Bound,
    /// As they are used.
    Used,
}

/// What counts for the limits of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TokenRules {
    /// When the tokens of an answer count.
    pub output: OutputRule,
    /// Whether what is read out of a cache counts.
    pub cached: bool,
}

impl TokenRules {
    /// As OpenAI counts: the bound of the answer on arrival, and the input with what was cached.
    pub const OPENAI: Self = Self { output: OutputRule::Bound, cached: true };
    /// As Anthropic counts: the answer as it is used, and the input without what was read out of a cache.
    pub const ANTHROPIC: Self = Self { output: OutputRule::Used, cached: false };

    /// These, with another rule for answers.
    #[must_use]
    pub const fn output(mut self, output: OutputRule) -> Self {
        self.output = output;
        self
    }
}

/// Tokens of a call. `None` is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TokenCount {
    /// What the model reads.
    pub input: Option<u64>,
    /// What it answers.
    pub output: Option<u64>,
}

impl TokenCount {
    /// Both together, where both are known.
    #[must_use]
    pub fn sum(self) -> Option<u64> {
        Some(self.input?.saturating_add(self.output?).min(MOST))
    }
}

/// What a call is charged, and what is to be known of it when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenEstimate {
    /// The tokens that it is charged.
    pub input: u64,
    /// The same of the answer.
    pub output: u64,
    request: LlmRequest,
}

impl TokenEstimate {
    /// The tokens that it is charged.
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

/// Estimates what calls cost, and learns of what they have cost. Its memory is bounded.
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

    /// The tokens of an answer whose request names no bound, until calls were seen.
    #[must_use]
    pub fn default_output(mut self, tokens: u64) -> Self {
        self.default_output = tokens.min(MOST);
        self
    }

    /// What a call is charged.
    pub fn estimate(&mut self, request: LlmRequest) -> TokenEstimate {
        let learned = self.learned.estimate(request.model(), Learned::Input, START);
        let texts = match self.rules.output {
            // Such a service counts on arrival by a rule of its own, whatever is read then.
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

    /// What a call has cost whose response has this status, and says that so much was used. `None` leaves it as it was charged. An error
    /// that says nothing has used no tokens.
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

    /// What a call has cost that used so much. It learns of it.
    pub fn settle(&mut self, estimate: &TokenEstimate, usage: TokenUsage) -> TokenCount {
        let request = &estimate.request;
        let cached = if self.rules.cached { 0 } else { usage.cached };
        let input = usage.input.map(|input| input.saturating_sub(cached));
        let output = usage.output.or((!request.is_answered()).then_some(0));
        if let Some(input) = input.filter(|_| request.is_whole()) {
            // A token has at least a byte: what is more was not in the request.
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

/// The list of calls with answers like those of a request.
fn answers(request: &LlmRequest) -> Learned {
    Learned::Output(request.bound().map_or(0, |bound| u64::BITS - bound.leading_zeros()))
}

/// The tokens of so many bytes.
fn tokens(bytes: u64, each: u64) -> u64 {
    u64::try_from((u128::from(bytes) * u128::from(each)).div_ceil(u128::from(SCALE))).unwrap_or(MOST)
}
