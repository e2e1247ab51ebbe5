//! The targets of the fuzzer, with the promises that hold for every input.

mod forwarded;
mod forwarded_model;
mod llm;
mod notation;
mod policy_file;
mod policy_file_text;
mod replies;
mod responses;
mod store_url;
mod stored_value;

/// A reader of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Also the name of its folder in the corpus.
    pub(crate) name: &'static str,
    /// Reads an input, and returns the kind of its outcome. Panics when a promise is broken.
    pub(crate) run: fn(&[u8]) -> String,
    /// Words that inputs are made of.
    pub(crate) words: &'static [&'static str],
}

pub(crate) const TARGETS: [Target; 8] = [
    Target { name: "notation", run: notation::run, words: notation::WORDS },
    Target { name: "policy_file", run: policy_file::run, words: policy_file::WORDS },
    Target { name: "store_url", run: store_url::run, words: store_url::WORDS },
    Target { name: "replies", run: replies::run, words: replies::WORDS },
    Target { name: "stored_value", run: stored_value::run, words: stored_value::WORDS },
    Target { name: "forwarded", run: forwarded::run, words: forwarded::WORDS },
    Target { name: "responses", run: responses::run, words: responses::WORDS },
    Target { name: "llm", run: llm::run, words: llm::WORDS },
];
