//! The token costs of calls to models, for `tidegate/llm.py`.

use pyo3::prelude::*;
use tidegate::host::Mutex;
use tidegate::http::{LlmRequest, OutputRule, TokenRules};

use crate::convert::shown;
use crate::error::config;

/// Estimates the calls of a preset, and learns from them.
#[pyclass(frozen)]
pub(crate) struct TokenEstimator {
    inner: Mutex<tidegate::http::TokenEstimator>,
}

/// The charge of a call.
#[pyclass(frozen)]
pub(crate) struct TokenEstimate {
    inner: tidegate::http::TokenEstimate,
}

/// Reads the usage out of a response that comes in chunks.
#[pyclass(frozen)]
pub(crate) struct UsageReader {
    inner: Mutex<tidegate::http::UsageReader>,
}

/// Tokens of the input and of the answer. None if unknown.
type Tokens = (Option<u64>, Option<u64>);

#[pymethods]
impl TokenEstimator {
    #[new]
    #[pyo3(signature = (preset: "str", output: "str | None" = None, default_output: "int | None" = None))]
    fn new(preset: &str, output: Option<&str>, default_output: Option<u64>) -> PyResult<Self> {
        let rules = if preset == "anthropic" { TokenRules::ANTHROPIC } else { TokenRules::OPENAI };
        let rules = match output {
            None => rules,
            Some("bound") => rules.output(OutputRule::Bound),
            Some("used") => rules.output(OutputRule::Used),
            Some(other) => return Err(config(format!("output cannot be {other:?}: it must be \"bound\" or \"used\""))),
        };
        let estimator = tidegate::http::TokenEstimator::new(rules);
        let inner = default_output.into_iter().fold(estimator, tidegate::http::TokenEstimator::default_output);
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// The charge of the request to this path with this body. None if the request is not for a model.
    ///
    /// A tokenizer counts the tokens of the texts. It returns a number, or a sequence with that length.
    #[pyo3(signature = (path: "str | None", body: "bytes", tokenizer: "Callable[[str], Any] | None" = None) -> "TokenEstimate | None")]
    fn estimate(
        &self,
        path: Option<&str>,
        body: &[u8],
        tokenizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<TokenEstimate>> {
        let mut texts = Vec::new();
        let keep = tokenizer.is_some();
        let mut add = |text: &str| {
            if keep {
                texts.push(text.to_owned());
            }
        };
        let Some(mut request) = LlmRequest::read_texts(path, body, &mut add) else { return Ok(None) };
        if let Some(tokenizer) = tokenizer {
            let mut tokens = 0_u64;
            for text in texts {
                let counted = tokenizer.call1((text,))?;
                let number = counted.extract::<u64>().or_else(|_| counted.len().map(|length| length as u64));
                let number = number.map_err(|_| {
                    let given = shown(&counted);
                    config(format!(
                        "tokenizer returned {given}: it must return the number of tokens of a text, or the tokens"
                    ))
                })?;
                tokens = tokens.saturating_add(number);
            }
            request = request.with_text_tokens(tokens);
        }
        Ok(Some(TokenEstimate { inner: self.inner.lock().estimate(request) }))
    }

    /// The actual cost of a call, from its response. None if the response has no usage and the call was served.
    #[pyo3(signature = (estimate: "TokenEstimate", response: "UsageReader", status: "int") -> "tuple[int | None, int | None] | None")]
    fn settle(&self, estimate: &TokenEstimate, response: &UsageReader, status: u16) -> Option<Tokens> {
        let usage = response.inner.lock().usage();
        let tokens = self.inner.lock().settle_response(&estimate.inner, status, usage)?;
        Some((tokens.input, tokens.output))
    }
}

#[pymethods]
impl TokenEstimate {
    /// The tokens of the input and of the answer.
    #[getter]
    fn tokens(&self) -> (u64, u64) {
        (self.inner.input, self.inner.output)
    }
}

#[pymethods]
impl UsageReader {
    #[new]
    #[pyo3(signature = ())]
    fn new() -> Self {
        Self { inner: Mutex::default() }
    }

    /// Reads the next chunk.
    #[pyo3(signature = (chunk: "bytes") -> "None")]
    fn feed(&self, chunk: &[u8]) {
        self.inner.lock().feed(chunk);
    }
}
