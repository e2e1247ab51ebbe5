//! Functions for the bindings to other languages and the command only: calls as data, answers delivered to a queue of an event
//! loop, event loops that read replies themselves, and questions to the servers of a store. No part of the public API.

mod completion_queue;
mod json;
mod limiter;
mod parts;
#[cfg(feature = "redis")]
mod questions;
mod reply_poller;
#[cfg(feature = "redis")]
mod servers;
mod tasks;

pub use crate::algorithm::{AlgorithmKind, DEFAULT_TTL, calendar_edges};
pub use crate::flow::{Admission, AskedStep, OutgoingCall, RefusedJob, RefusingLimit};
pub use crate::http::options::{LAYER_OPTIONS, LIMIT_OPTIONS};
pub use crate::limiter::{
    ActualCosts, Answered, CALL_OPTIONS, Call, ChargedEntry, ChargedLimit, ChargedUnits, DENIAL_GENERATIONS,
    LIMITER_OPTIONS, LimiterOption, SettingValue, calls_of, charge_mark, check_cost, check_percent, number_or_units,
    shared_cost, turn_length,
};
pub use crate::policy::declaration::{ArgumentKind, OptionDeclaration, OptionDefault};
pub use crate::policy::options::{OptionKind, OptionValue, POLICY_OPTIONS, PolicyOption};
pub use crate::policy::prefix::DEFAULT_PREFIX;
pub use crate::policy::suggestion::nearest;
pub use crate::process::fork::generation as process_generation;
#[cfg(all(feature = "bench", debug_assertions))]
pub use crate::process::lock::stepping;
pub use crate::process::lock::{InheritedMutex, Mutex};
#[cfg(any(feature = "files", feature = "redis"))]
pub use crate::process::regular_file::{Links, Unreadable, read as read_regular_file};
pub use crate::store::batch_guard::{BatchGuard, cohort_size};
pub use crate::store::completion::Wake;
pub use crate::store::key_names::KeyNames;
#[cfg(all(unix, feature = "redis"))]
pub use crate::store::machine::StoredFile;
#[cfg(feature = "postgres")]
pub use crate::store::postgres::{
    StoredTable, TableFacts, TableSample, ddl as postgres_ddl, set_up as set_up_postgres,
};
pub use completion_queue::{CompletionQueue, Outcome};
pub use json::{counters_json, metrics_json, samples_json, stats_json};
pub use parts::Parts;
#[cfg(feature = "redis")]
pub use questions::{
    AskedMethod as Asked, CallerQuestions, HostStore, MethodReply as Reply, Question, begin_verify, verify_awaited,
};
pub use reply_poller::ReplyPoller;
#[cfg(feature = "redis")]
pub use servers::{
    ServerAddress, ServerConnection, ShardServers, StoreServers, pattern_of_keys, redis_key, scanned_keys,
    stored_decision, stored_limits,
};
pub use tasks::{Started, Task, post_begun, post_task};

use std::time::Duration;

use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::limiter::Builder;
use crate::plan::plan_cache::plan_of;
use crate::policy::{Algorithm, Limit, Policy, Warning};
#[cfg(feature = "stored")]
use crate::store::stored_key::StoredKey;
use crate::store::url;

/// Bytes of the digest that follows the prefix in the name of a key.
#[cfg(feature = "stored")]
pub const KEY_DIGEST: usize = StoredKey::DIGEST;

/// The bytes of a policy's value in Redis, for a key that is hardly used and for one that uses all its limits. The log
/// of a `sliding-log` and the journal are not counted, because they have separate keys.
#[cfg(feature = "stored")]
#[must_use]
pub fn stored_bytes(policy: &Policy) -> (usize, usize) {
    plan_of(policy).stored.value_bytes(policy)
}

/// Every warning about a policy file, given by its path, or about a notation.
///
/// # Errors
/// `policy_invalid`, as for the file or the notation.
pub fn lint_text(text: &str) -> Result<Vec<Warning>> {
    crate::policy::lint_text(text)
}

/// The message of an error with the names of options and calls as a host spells them.
#[must_use]
pub fn message_for(error: &Error, spell: impl Fn(&str) -> String) -> String {
    error.message_for(spell)
}

/// The kind of an algorithm.
#[must_use]
pub const fn kind(algorithm: Algorithm) -> AlgorithmKind {
    algorithm.kind()
}

/// A sentence that describes an algorithm, with words in braces for the numbers of a limit.
#[must_use]
pub const fn algorithm_words(algorithm: Algorithm) -> &'static str {
    algorithm.words()
}

/// The most units that any sequence of calls gets from a limit within `window` microseconds, without the last moment.
#[must_use]
pub fn most_in(limit: &Limit, window: u64) -> u64 {
    limit.most_in(window)
}

/// The shortest pause between units, in microseconds, at which a limit never denies. `None` if it denies all.
#[must_use]
pub fn steady_pause(limit: &Limit) -> Option<u64> {
    limit.steady()
}

/// The memory that a policy takes, for lists of policies that are bounded in bytes.
#[must_use]
pub fn policy_bytes(policy: &Policy) -> usize {
    plan_of(policy).bytes()
}

/// A wrong word in quotes, for messages. A URL is not shown, since it may hold a password.
#[must_use]
pub fn quoted(word: &str) -> String {
    crate::policy::quoted(word)
}

/// `; did you mean `x`?`, or nothing when none of the words is near.
pub fn did_you_mean<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    crate::policy::did_you_mean(word, words)
}

/// A store's URL without user, password and options.
#[must_use]
pub fn without_secrets(store_url: &str) -> String {
    url::without_secrets(store_url)
}

/// A foreign text, without the characters that a terminal or a log would obey.
#[must_use]
pub fn visible(text: &str) -> std::borrow::Cow<'_, str> {
    crate::error::visible(text)
}

/// Builds a limiter that `tidegate top` does not show, for a tool.
#[must_use]
pub fn unpublished(mut builder: Builder) -> Builder {
    builder.publishes = false;
    builder
}

/// The limits by which another release also counts the key of a Decision.
#[must_use]
pub fn other_limits(decision: &Decision) -> Vec<String> {
    let rare = decision.answer().rare.as_ref();
    rare.map(|rare| decision.plan().of_other_releases(&rare.others)).unwrap_or_default()
}

/// The number of callers in the line of a Decision's key, and how long the first had waited. Each process and class
/// with waiting callers counts as one. `None` if there were none.
#[must_use]
pub fn line(decision: &Decision) -> Option<(usize, Duration)> {
    let answer = decision.answer();
    let line = &answer.rare.as_ref()?.line;
    let first = line.iter().min()?;
    Some((line.len(), Duration::from_micros(answer.now.saturating_sub(*first))))
}

/// The generation in which the denial of a Decision may be repeated.
#[must_use]
pub fn denial_generation(decision: &Decision) -> u32 {
    decision.answer().denial_generation
}

/// The units that a Decision has consumed of one of its limits.
#[must_use]
pub fn charged_of_limit(decision: &Decision, index: usize) -> u64 {
    decision.charged(index)
}

/// True if a call took other units than its cost, or left a part free, so that not every call of that cost gets its answer.
#[must_use]
pub fn has_amounts(decision: &Decision) -> bool {
    !decision.answer().amounts().is_empty()
}

/// The policy with the override of a Decision's key, if that decided.
#[must_use]
pub fn own_policy(decision: &Decision) -> Option<&Policy> {
    decision.overridden().then(|| decision.asked_policy())
}

/// The units of each limit of a policy that a class leaves free. Empty for a class that the policy does not have.
#[must_use]
pub fn left_free(policy: &Policy, class: &str) -> Vec<u64> {
    let part = policy.options().priorities.as_ref().and_then(|classes| classes.part_of(class, policy.name()).ok());
    policy.limits().iter().filter_map(|limit| Some(part?.of(limit.capacity()))).collect()
}

/// The limits of a Decision's key as text, if an override decided.
#[must_use]
pub fn override_text(decision: &Decision) -> Option<String> {
    let plan = decision.plan();
    decision.overridden().then(|| if plan.is_unlimited() { "none".to_owned() } else { plan.policy.to_string() })
}

/// How much longer the key of a Decision is blocked, if it is blocked.
#[must_use]
pub fn block_left(decision: &Decision) -> Option<Duration> {
    let answer = decision.answer();
    let left = answer.blocked_until.saturating_sub(answer.now);
    (left > 0).then(|| Duration::from_micros(left))
}
