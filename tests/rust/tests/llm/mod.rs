//! The cost of calls of models: the data in `tests/http/llm.json`, a trace of calls, and the bounds.

mod trace;

use serde_json::{Value, json};
use tidegate::http::{LlmRequest, OutputRule, TokenCount, TokenEstimate, TokenEstimator, TokenRules, UsageReader};
use tidegate_tests::budget::within;

use self::trace::{TracedCall, trace};

/// An estimator with the units that its preset counts, as the presets of the hosts put them together.
struct Preset {
    estimator: TokenEstimator,
    units: Vec<String>,
}

impl Preset {
    fn of(case: &Value) -> Self {
        let (rules, units) = match case["preset"].as_str().expect("a preset") {
            "openai" => (TokenRules::OPENAI, json!(["tokens"])),
            "anthropic" => (TokenRules::ANTHROPIC, json!(["input-tokens", "output-tokens"])),
            other => panic!("no preset is called {other}"),
        };
        let options = &case["options"];
        let rules = match options["output"].as_str() {
            None => rules,
            Some("used") => rules.output(OutputRule::Used),
            Some("bound") => rules.output(OutputRule::Bound),
            Some(other) => panic!("no rule is called {other}"),
        };
        let mut estimator = TokenEstimator::new(rules);
        if let Some(tokens) = options["default_output"].as_u64() {
            estimator = estimator.default_output(tokens);
        }
        let units = options.get("units").unwrap_or(&units).as_array().expect("a list").clone();
        Self { estimator, units: units.iter().map(|unit| unit.as_str().expect("a name").to_owned()).collect() }
    }

    fn estimate(&mut self, path: Option<&str>, body: &[u8]) -> Option<TokenEstimate> {
        LlmRequest::read(path, body).map(|request| self.estimator.estimate(request))
    }

    /// The known units of a number of tokens.
    fn cost(&self, tokens: TokenCount) -> Value {
        let number = |unit: &str| match unit {
            "tokens" => tokens.sum(),
            "input-tokens" => tokens.input,
            _ => tokens.output,
        };
        let known = self.units.iter().filter_map(|unit| Some((unit.clone(), json!(number(unit)?))));
        let known: serde_json::Map<String, Value> = known.collect();
        if known.is_empty() { Value::Null } else { known.into() }
    }

    fn nothing(&self) -> Value {
        self.units.iter().map(|unit| (unit.clone(), json!(0))).collect::<serde_json::Map<String, Value>>().into()
    }
}

fn body(call: &Value) -> Vec<u8> {
    match call["body"].as_str() {
        Some(body) => body.as_bytes().to_vec(),
        None => call.get("request").map(|request| request.to_string().into_bytes()).unwrap_or_default(),
    }
}

fn chunks(call: &Value) -> Option<Vec<Vec<u8>>> {
    if let Some(answer) = call.get("answer") {
        return Some(vec![answer.to_string().into_bytes()]);
    }
    let text = |chunk: &Value| chunk.as_str().expect("a text").as_bytes().to_vec();
    Some(call["chunks"].as_array()?.iter().map(text).collect())
}

#[test]
fn the_vectors_hold() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../http/llm.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("readable")).expect("JSON");
    let mut wrong = Vec::new();
    for case in file["cases"].as_array().expect("cases") {
        let mut preset = Preset::of(case);
        for (index, call) in case["calls"].as_array().expect("calls").iter().enumerate() {
            let name = format!("{}, call {index}", case["name"]);
            for _ in 0..call["times"].as_u64().unwrap_or(1) {
                let estimate = preset.estimate(call["path"].as_str(), &body(call));
                let charge =
                    estimate.as_ref().map_or_else(|| preset.nothing(), |estimate| preset.cost(estimate.count()));
                if call.get("charge").is_some_and(|expected| charge != *expected) {
                    wrong.push(format!("{name}: the charge is {charge}, not {}", call["charge"]));
                }
                let Some(chunks) = chunks(call) else { continue };
                let mut reader = UsageReader::default();
                chunks.iter().for_each(|chunk| reader.feed(chunk));
                let status = call["status"].as_u64().unwrap_or(200) as u16;
                let settled =
                    estimate.and_then(|estimate| preset.estimator.settle_response(&estimate, status, reader.usage()));
                let cost = settled.map_or(Value::Null, |tokens| preset.cost(tokens));
                if call.get("cost").is_some_and(|expected| cost != *expected) {
                    wrong.push(format!("{name}: the cost is {cost}, not {}", call["cost"]));
                }
                // The usage is the same however the answer is cut.
                let all = chunks.concat();
                for size in [1, 2, 3, 7] {
                    let mut cut = UsageReader::default();
                    all.chunks(size).for_each(|chunk| cut.feed(chunk));
                    assert_eq!(cut.usage(), reader.usage(), "{name}: in chunks of {size}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_tokenizer_gets_each_text_that_is_read() {
    let mut texts = Vec::new();
    let body = json!({
        "model": "m",
        "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image", "source": {"type": "base64", "data": "AAAA"}}]},
            {"role": "assistant", "content": "I do."},
        ],
        "max_tokens": 9,
    });
    let body = body.to_string();
    let request =
        LlmRequest::read_texts(None, body.as_bytes(), &mut |text| texts.push(text.to_owned())).expect("it is one");
    assert_eq!(texts, ["Be short.", "Look.", "I do."]);
    let counted = request.clone().with_text_tokens(100);
    assert_eq!(counted.bytes() - request.bytes(), 400 - 19);
    let mut estimator = TokenEstimator::new(TokenRules::ANTHROPIC);
    assert_eq!(estimator.estimate(counted).input, 100 + (2 * 16 + 12) / 4 + 1_600);
}

/// The charged and the used tokens of one kind, over the calls of a trace.
#[derive(Default)]
struct Totals {
    calls: u64,
    covered: u64,
    charged: u64,
    used: u64,
}

impl Totals {
    fn add(&mut self, charged: u64, used: u64) {
        self.calls += 1;
        self.covered += u64::from(charged >= used);
        self.charged += charged;
        self.used += used;
    }

    fn share(&self) -> f64 {
        self.covered as f64 / self.calls as f64
    }

    fn excess(&self) -> f64 {
        self.charged as f64 / self.used.max(1) as f64 - 1.0
    }
}

/// Replays calls with late answers, like those of a client with many calls under way.
fn replay(rules: TokenRules, calls: &[TracedCall], under_way: usize) -> [Totals; 3] {
    let mut estimator = TokenEstimator::new(rules);
    let mut totals: [Totals; 3] = Default::default();
    let mut waiting = std::collections::VecDeque::new();
    for call in calls {
        let request = LlmRequest::read(Some(call.path), call.body().as_bytes()).expect("a request of the trace");
        let estimate = estimator.estimate(request);
        totals[0].add(estimate.input, call.input);
        if call.output > 0 {
            totals[1].add(estimate.output, call.output);
        }
        totals[2].add(estimate.count().sum().expect("both are known"), call.input + call.output);
        waiting.push_back((estimate, call));
        if waiting.len() > under_way {
            let (estimate, call) = waiting.pop_front().expect("one is there");
            let mut reader = UsageReader::default();
            reader.feed(call.answer().as_bytes());
            estimator.settle(&estimate, reader.usage().expect("it says what was used"));
        }
    }
    totals
}

#[test]
fn the_estimate_covers_what_is_used() {
    for (name, rules, paths) in [
        ("OpenAI", TokenRules::OPENAI, &["/v1/chat/completions", "/v1/responses", "/v1/embeddings"][..]),
        (
            "a service like OpenAI that counts what is used",
            TokenRules::OPENAI.output(OutputRule::Used),
            &["/v1/chat/completions", "/v1/responses", "/v1/embeddings"][..],
        ),
        ("Anthropic", TokenRules::ANTHROPIC, &["/v1/messages"][..]),
    ] {
        for seed in within(1, 1..=3) {
            let calls = trace(seed, 6_000, paths);
            let totals = replay(rules, &calls, 16);
            for (what, totals) in ["input", "output", "both"].iter().zip(&totals) {
                println!(
                    "{name}, seed {seed}, {what}: {:.2} % of {} calls covered, {:.1} % more charged than used",
                    100.0 * totals.share(),
                    totals.calls,
                    100.0 * totals.excess()
                );
                assert!(totals.share() >= 0.95, "{name}, seed {seed}, {what}: {:.4} covered", totals.share());
            }
        }
    }
}
