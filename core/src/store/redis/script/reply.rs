//! Decodes the reply of the script into answers. `lua/head.lua` has the format.

use redis::Value;

use super::batch::{Batch, Grouping};
use super::request::Request;
use super::stored_value::{self, ViewContext};
use crate::error::{Error, ErrorKind, Result};
use crate::store::request::{Answer, Attempt, Operation, Source};

/// Bytes before the value in the reply of `lua/fast_path.lua` to a single request: the time, and how many were refused.
const SINGLE_REPLY_HEAD: usize = 9;

impl Batch {
    /// The answers, in the order of the requests.
    pub(crate) fn answers(&self, reply: Value) -> Result<Vec<Result<Answer>>> {
        let ScriptReply { now, refused, mut items } = ScriptReply::decode(reply)?;
        // For each request the limits that refused it. The script gives them only where the value does not show them.
        let mut denied: Vec<Option<u16>> = vec![None; self.requests().len()];
        for number in refused {
            if let Value::Int(number) = number
                && let Some(slot) = usize::try_from((number & 0xffff) - 1).ok().and_then(|at| denied.get_mut(at))
            {
                *slot = Some((number >> 16) as u16);
            }
        }
        let request = |index: u16| &self.requests()[usize::from(index)];
        // Whether requests that were admitted stay charged.
        let charged = match self.grouping() {
            Grouping::Independent => true,
            Grouping::AllOrNothing => self
                .members()
                .zip(&denied)
                .all(|(member, denied)| denied.is_none() || request(member.request).plan.policy.options().shadow),
            Grouping::DryRun | Grouping::RecordRefusals => false,
        };
        let mut answers: Vec<Option<Result<Answer>>> = self.requests().iter().map(|_| None).collect();
        for (member, denied) in self.members().zip(denied) {
            let item = items.next().ok_or_else(|| garbled("too few answers"))?;
            let request = request(member.request);
            let answer = answer(request, now, denied.is_none(), charged, item);
            let check = matches!(request.operation, Operation::Check { .. });
            let refused = denied.filter(|_| {
                check && (self.grouping() != Grouping::Independent || request.plan.policy.options().count_denied)
            });
            answers[usize::from(member.request)] = Some(answer.map(|answer| Answer { refused, ..answer }));
        }
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(garbled("too few answers")))).collect())
    }
}

/// A reply whose items are not decoded yet.
struct ScriptReply {
    now: u64,
    /// See `lua/head.lua`.
    refused: Vec<Value>,
    /// One for each request, in the order of the script.
    items: std::vec::IntoIter<Value>,
}

impl ScriptReply {
    fn decode(reply: Value) -> Result<Self> {
        match reply {
            Value::Array(parts) => {
                let mut items = parts.into_iter();
                let (Some(Value::Int(now)), Some(Value::Array(refused))) = (items.next(), items.next()) else {
                    return Err(garbled("no time and no list of refusals"));
                };
                Ok(Self { now: now as u64, refused, items })
            }
            Value::BulkString(mut text) if text.len() >= SINGLE_REPLY_HEAD => {
                let value = text.split_off(SINGLE_REPLY_HEAD);
                let now = f64::from_le_bytes(*text.first_chunk().unwrap_or(&[0; 8])) as u64;
                let refused = vec![Value::Int(1); text[SINGLE_REPLY_HEAD - 1].into()];
                Ok(Self { now, refused, items: vec![Value::BulkString(value)].into_iter() })
            }
            Value::ServerError(error) => Err(rejected(&error)),
            other => Err(garbled(&format!("{other:?}"))),
        }
    }
}

/// The answer to one request. `applied` is false when it was refused; `charged` says whether an admitted one stays charged.
fn answer(request: &Request, now: u64, applied: bool, charged: bool, item: Value) -> Result<Answer> {
    let mut answer = Answer { applied, now, source: Source::Store, ..Answer::default() };
    match (&request.operation, item) {
        (_, Value::ServerError(error)) => Err(rejected(&error)),
        (Operation::Journal, Value::Array(items)) => {
            // The list expires as a whole; each attempt has its own time.
            let live = |attempt: &Attempt| attempt.at + request.plan.journal_life() > now;
            answer.attempts = Some(Box::new(items.iter().filter_map(attempt).filter(live).collect()));
            Ok(answer)
        }
        (Operation::Clear, Value::BulkString(_)) => {
            answer.views = request.plan.unused_views(now, 1);
            Ok(answer)
        }
        (operation, Value::BulkString(bytes)) => {
            let charged = match operation {
                Operation::Check { cost, .. } if applied && charged => *cost,
                _ => 0,
            };
            let context = ViewContext { now, cost: operation.cost(), charged };
            let repeats = !applied && matches!(operation, Operation::Check { .. }) && request.plan.repeats_denials();
            answer.states = repeats.then(Box::default);
            (answer.views, answer.blocked_until) =
                stored_value::read(&request.plan, &bytes, context, answer.states.as_deref_mut())
                    .ok_or_else(|| garbled("a state that cannot be read"))?;
            Ok(answer)
        }
        (_, other) => Err(garbled(&format!("{other:?}"))),
    }
}

/// See `add_to_journal` in `lua/slow_path.lua`.
fn attempt(item: &Value) -> Option<Attempt> {
    let Value::BulkString(bytes) = item else { return None };
    let (at, rest) = bytes.split_first_chunk::<8>()?;
    let (cost, rest) = rest.split_first_chunk::<8>()?;
    let (allowed, meta) = rest.split_first()?;
    Some(Attempt {
        at: f64::from_le_bytes(*at) as u64,
        cost: f64::from_le_bytes(*cost) as u64,
        allowed: *allowed == 1,
        meta: (!meta.is_empty()).then(|| meta.to_vec()),
    })
}

fn garbled(what: &str) -> Error {
    Error::new(
        ErrorKind::StoreRejected,
        format!(
            "Redis answered with something that is no answer of Tidegate's script ({what}): is this a Redis or Valkey server?"
        ),
    )
}

/// The error of a call that the server answered with an error. The server's text holds no secret of ours.
pub(crate) fn rejected(error: &redis::ServerError) -> Error {
    let (code, detail) = (error.code(), error.details().unwrap_or_default());
    let advice = match code {
        "WRONGTYPE" => ": another program stores something else under this key; use another prefix",
        "OOM" => ": the server is at its maxmemory and may not evict; raise it or set an eviction policy",
        "READONLY" => ": this server is a replica; connect to the primary",
        "NOPERM" => ": the ACL user lacks a command or a key pattern that Tidegate needs",
        _ if detail.contains("user executing the script") => {
            ": the ACL user lacks a command or a key pattern that Tidegate needs"
        }
        "NOAUTH" | "WRONGPASS" => ": give the right user and password in the store URL",
        "TIDEGATE" => ": another program, or a newer Tidegate, writes under this prefix; use another prefix",
        _ => "",
    };
    Error::new(ErrorKind::StoreRejected, format!("Redis refused: {code} {}{advice}", detail.trim()))
}
