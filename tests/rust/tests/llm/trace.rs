//! A trace of calls, made from a seed. It has no texts of people. It makes up the bytes of a token, the lengths of
//! inputs and answers, and how these differ between the tasks of a service.
//!
//! The numbers are not fitted to the estimator. Lengths are log-normal, as in published traces. The bytes of a token are those of
//! tokenizers of English, code, JSON, German and Japanese, and vary by text. A task changes its prompt in the middle.

use serde_json::json;
use tidegate_tests::random::Random;

/// A call, with the tokens that it used.
pub(crate) struct TracedCall {
    pub(crate) path: &'static str,
    model: &'static str,
    system: String,
    text: String,
    bound: Option<u64>,
    pub(crate) input: u64,
    pub(crate) output: u64,
}

/// A task for which a service uses a model.
struct Task {
    path: &'static str,
    model: &'static str,
    /// Its share of the calls.
    share: u64,
    system_bytes: usize,
    /// The median of the bytes of the input, and how far it varies.
    text: (f64, f64),
    /// Bytes of a token, and how far they vary.
    token: (f64, f64),
    script: &'static str,
    bound: Option<u64>,
    /// The median of the tokens of the answer, and how far it varies.
    answer: (f64, f64),
    /// Tokens of the answer for each token of the input.
    follows: f64,
}

const ENGLISH: &str = "The harbour was quiet, and the boats lay still. ";
const CODE: &str = "for (i, x) in xs.iter().enumerate() { total += x * i; }\n";
const JSON: &str = "{\"id\": 1042, \"name\": \"Bolt\", \"price\": 3.75, \"tags\": [\"a\", \"b\"]}, ";
const GERMAN: &str = "Die Geschwindigkeitsbegrenzung gilt f\u{fc}r alle Verkehrsteilnehmer. ";
const JAPANESE: &str = "\u{6e2f}\u{306f}\u{9759}\u{304b}\u{3067}\u{3001}\u{8239}\u{306f}\u{52d5}\u{304b}\u{306a}\u{304b}\u{3063}\u{305f}\u{3002}";

const TASKS: &[Task] = &[
    // A chat with people.
    Task {
        path: "/v1/chat/completions",
        model: "large",
        share: 30,
        system_bytes: 1_800,
        text: (900.0, 1.1),
        token: (4.4, 0.10),
        script: ENGLISH,
        bound: Some(4_096),
        answer: (260.0, 0.9),
        follows: 0.0,
    },
    Task {
        path: "/v1/chat/completions",
        model: "large",
        share: 8,
        system_bytes: 1_800,
        text: (700.0, 1.0),
        token: (4.1, 0.12),
        script: GERMAN,
        bound: Some(4_096),
        answer: (300.0, 0.8),
        follows: 0.0,
    },
    Task {
        path: "/v1/chat/completions",
        model: "large",
        share: 5,
        system_bytes: 1_800,
        text: (500.0, 0.9),
        token: (3.1, 0.10),
        script: JAPANESE,
        bound: Some(4_096),
        answer: (280.0, 0.8),
        follows: 0.0,
    },
    // A label for each document.
    Task {
        path: "/v1/chat/completions",
        model: "small",
        share: 25,
        system_bytes: 600,
        text: (2_400.0, 0.7),
        token: (4.3, 0.10),
        script: ENGLISH,
        bound: Some(16),
        answer: (4.0, 0.5),
        follows: 0.0,
    },
    // Fields out of documents, without a bound.
    Task {
        path: "/v1/chat/completions",
        model: "small",
        share: 10,
        system_bytes: 900,
        text: (3_000.0, 0.8),
        token: (3.2, 0.12),
        script: JSON,
        bound: None,
        answer: (40.0, 0.4),
        follows: 0.12,
    },
    // An agent that writes code and thinks first.
    Task {
        path: "/v1/responses",
        model: "thinking",
        share: 12,
        system_bytes: 6_000,
        text: (12_000.0, 1.0),
        token: (3.6, 0.12),
        script: CODE,
        bound: Some(32_000),
        answer: (1_800.0, 1.1),
        follows: 0.0,
    },
    Task {
        path: "/v1/embeddings",
        model: "vectors",
        share: 10,
        system_bytes: 0,
        text: (1_200.0, 0.6),
        token: (4.4, 0.10),
        script: ENGLISH,
        bound: None,
        answer: (0.0, 0.0),
        follows: 0.0,
    },
    // A chat at another vendor.
    Task {
        path: "/v1/messages",
        model: "writer",
        share: 35,
        system_bytes: 2_400,
        text: (1_500.0, 1.1),
        token: (4.0, 0.10),
        script: ENGLISH,
        bound: Some(8_192),
        answer: (320.0, 0.9),
        follows: 0.0,
    },
    Task {
        path: "/v1/messages",
        model: "writer",
        share: 10,
        system_bytes: 2_400,
        text: (900.0, 1.0),
        token: (2.6, 0.10),
        script: JAPANESE,
        bound: Some(8_192),
        answer: (350.0, 0.8),
        follows: 0.0,
    },
    // Summaries: their length follows from that of the input.
    Task {
        path: "/v1/messages",
        model: "writer",
        share: 15,
        system_bytes: 500,
        text: (20_000.0, 0.6),
        token: (4.1, 0.08),
        script: ENGLISH,
        bound: Some(1_024),
        answer: (60.0, 0.3),
        follows: 0.06,
    },
    Task {
        path: "/v1/messages",
        model: "coder",
        share: 40,
        system_bytes: 9_000,
        text: (16_000.0, 1.0),
        token: (3.2, 0.12),
        script: CODE,
        bound: Some(32_000),
        answer: (900.0, 1.2),
        follows: 0.0,
    },
];

/// The seed's calls to these paths.
pub(crate) fn trace(seed: u64, count: usize, paths: &[&str]) -> Vec<TracedCall> {
    let mut random = Random::new(seed);
    let tasks: Vec<&Task> = TASKS.iter().filter(|task| paths.contains(&task.path)).collect();
    let shares = tasks.iter().map(|task| task.share).sum();
    let chosen = |random: &mut Random| {
        let mut at = random.below(shares);
        *tasks
            .iter()
            .find(|task| {
                at.checked_sub(task.share).is_none_or(|rest| {
                    at = rest;
                    false
                })
            })
            .expect("a task")
    };
    (0..count)
        .map(|index| {
            let task = chosen(&mut random);
            // A new prompt in the middle: longer, with longer answers.
            let grows = if index > count / 2 && matches!(task.model, "large" | "writer") { 1.4 } else { 1.0 };
            call(task, grows, &mut random)
        })
        .collect()
}

fn call(task: &Task, grows: f64, random: &mut Random) -> TracedCall {
    let system = filled(ENGLISH, (task.system_bytes as f64 * grows) as usize);
    let text = filled(task.script, log_normal(random, task.text).clamp(8.0, 200_000.0) as usize);
    let each = task.token.0 * (1.0 + task.token.1 * normal(random)).clamp(0.6, 1.5);
    let wrapped = if task.bound.is_none() && task.answer.0 == 0.0 { 0 } else { 11 };
    let read = (system.len() as f64 / 4.4 + text.len() as f64 / each).ceil() as u64 + wrapped;
    let answered = log_normal(random, task.answer) * grows + task.follows * read as f64 * (0.7 + 0.6 * uniform(random));
    let least = u64::from(task.answer.0 > 0.0);
    let output = (answered as u64).clamp(least, task.bound.unwrap_or(16_000));
    TracedCall { path: task.path, model: task.model, system, text, bound: task.bound, input: read, output }
}

impl TracedCall {
    pub(crate) fn body(&self) -> String {
        let Self { model, system, text, bound, .. } = self;
        let body = match self.path {
            "/v1/embeddings" => json!({"model": model, "input": text}),
            "/v1/responses" => {
                json!({"model": model, "instructions": system, "input": text, "max_output_tokens": bound})
            }
            "/v1/messages" => {
                json!({"model": model, "system": system, "messages": [{"role": "user", "content": text}], "max_tokens": bound})
            }
            _ => {
                json!({"model": model, "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}], "max_tokens": bound})
            }
        };
        body.to_string()
    }

    pub(crate) fn answer(&self) -> String {
        let Self { input, output, .. } = self;
        let usage = match self.path {
            "/v1/chat/completions" | "/v1/embeddings" => json!({"prompt_tokens": input, "completion_tokens": output}),
            _ => json!({"input_tokens": input, "output_tokens": output}),
        };
        json!({"id": "answer", "usage": usage}).to_string()
    }
}

fn filled(script: &str, bytes: usize) -> String {
    let mut text = script.repeat(bytes / script.len() + 1);
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

/// Between 0 and 1.
fn uniform(random: &mut Random) -> f64 {
    random.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

/// The sum of twelve uniform numbers is nearly normal.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

fn log_normal(random: &mut Random, (median, deviation): (f64, f64)) -> f64 {
    median * (deviation * normal(random)).exp()
}
