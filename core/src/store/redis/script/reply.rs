//! Decodes the reply of the script into answers. `lua/head.lua` has the format.

use redis::Value;
use smallvec::{SmallVec, smallvec};

use super::arrangement::Grouping;
use super::batch::Batch;
use super::request::Request;
use super::stored_value::{self, ViewContext};
use crate::algorithm::Rule;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::MAX_OVERRIDDEN_KEYS;
use crate::plan::Plan;
use crate::store::request::{Answer, Attempt, ChangedOverride, Operation, Source, States, StoredOverride};

/// Bytes of a number of a call.
const NUMBER: usize = 4;
/// Bytes before the value in the reply of `lua/check.lua` to a single request: the time, and how many were refused.
const SINGLE_HEAD: usize = 9;
/// All numbers of the script are smaller: a time in µs, or a number of units.
const MAX_TIME: f64 = 9_007_199_254_740_992.0;

impl Batch {
    /// True if a reply is the answer to this call. The script ends each answer with the number of its call.
    pub(crate) fn is_answered_by(&self, reply: &Value) -> bool {
        let requests = self.requests().len();
        let last = match reply {
            Value::BulkString(text) if requests == 1 && self.has_checks() && text.len() >= SINGLE_HEAD => text,
            Value::Array(items) if items.len() == requests + 1 => match items.last() {
                Some(Value::BulkString(seal)) => seal,
                _ => return false,
            },
            _ => return false,
        };
        last.last_chunk::<NUMBER>() == Some(&self.number().to_le_bytes())
    }

    /// The requests of a call over several slots that did not run, because their keys are not on this server.
    pub(crate) fn not_local(&self, reply: &Value) -> SmallVec<[u16; 4]> {
        let Value::Array(items) = reply else { return SmallVec::new() };
        let elsewhere = |item: &Value| matches!(item, Value::ServerError(error) if is_not_local(error));
        let found = self.members().zip(items).filter(|(_, item)| self.is_over_slots() && elsewhere(item));
        found.map(|(member, _)| member.request).collect()
    }

    /// The answers, in the order of the requests.
    pub(crate) fn answers(&self, reply: Value) -> Result<Vec<Result<Answer>>> {
        if let Value::ServerError(error) = &reply {
            return Err(rejected(error));
        }
        if !self.is_answered_by(&reply) {
            return Err(garbled(shape(&reply)));
        }
        let ScriptReply { now, refused, mut items } = ScriptReply::decode(reply)?;
        // The limits that refused each request. The script gives them only if the value does not show them.
        let mut denied: SmallVec<[Option<u16>; 1]> = smallvec![None; self.requests().len()];
        for number in refused {
            let index = usize::from(number as u16).checked_sub(1);
            let slot = index.and_then(|index| denied.get_mut(index)).ok_or_else(|| garbled("an unknown entry"))?;
            *slot = Some((number >> 16) as u16);
        }
        let request = |index: u16| &self.requests()[usize::from(index)];
        // True if admitted requests stay charged.
        let charged = match self.grouping() {
            Grouping::Independent => true,
            Grouping::AllOrNothing => self
                .members()
                .zip(&denied)
                .all(|(member, denied)| denied.is_none() || request(member.request).plan.policy.options().shadow),
            Grouping::DryRun | Grouping::RecordRefusals => false,
        };
        let mut answers: SmallVec<[Option<Result<Answer>>; 1]> = self.requests().iter().map(|_| None).collect();
        for (member, denied) in self.members().zip(denied) {
            let item = items.next().ok_or_else(|| garbled("too few answers"))?;
            let request = request(member.request);
            let mut answer = answer(request, now, denied.is_none(), charged, item);
            if let Ok(answer) = &mut answer {
                let is_asked = self.grouping() != Grouping::Independent || request.plan.charges_denials;
                answer.refused = denied.filter(|_| is_asked && request.operation.is_check());
                answer.applied &= answer.changed_override().is_none();
            }
            answers[usize::from(member.request)] = Some(answer);
        }
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(garbled("too few answers")))).collect())
    }
}

/// A reply to this call, with items that are not decoded yet.
struct ScriptReply {
    now: u64,
    /// The requests that the script refused.
    refused: SmallVec<[u32; 1]>,
    /// One for each request, in the order of the script.
    items: smallvec::IntoIter<[Value; 1]>,
}

impl ScriptReply {
    /// `reply` ends with the number of the call.
    fn decode(reply: Value) -> Result<Self> {
        match reply {
            Value::Array(parts) => {
                let mut items = SmallVec::from_vec(parts);
                let Some(Value::BulkString(seal)) = items.pop() else { return Err(garbled("no seal")) };
                let (time, rest) = seal.split_first_chunk().ok_or_else(|| garbled("a broken seal"))?;
                let numbers = rest.chunks_exact(NUMBER);
                if !numbers.remainder().is_empty() {
                    return Err(garbled("a broken seal"));
                }
                let mut refused: SmallVec<[u32; 1]> =
                    numbers.map(|number| number.try_into().map_or(0, u32::from_le_bytes)).collect();
                refused.pop();
                Ok(Self { now: time_of(*time)?, refused, items: items.into_iter() })
            }
            Value::BulkString(mut text) => {
                text.truncate(text.len().saturating_sub(NUMBER));
                let (head, value) = text.split_at_checked(SINGLE_HEAD).ok_or_else(|| garbled("a short text"))?;
                let now = time_of(*head.first_chunk().unwrap_or(&[0xff; 8]))?;
                let refused = match head[SINGLE_HEAD - 1] {
                    0 => SmallVec::new(),
                    1 => SmallVec::from_elem(1, 1),
                    _ => return Err(garbled("more refusals than requests")),
                };
                let item = Value::BulkString(value.to_vec());
                Ok(Self { now, refused, items: SmallVec::from([item]).into_iter() })
            }
            other => Err(garbled(shape(&other))),
        }
    }
}

/// True if the server refused a command of the script because it lacks the key, or the call does not declare it.
fn is_not_local(error: &redis::ServerError) -> bool {
    let details = error.details().unwrap_or_default();
    details.starts_with("Script attempted to access a non local key")
        || details.starts_with("Script attempted to access keys that do not hash to the same slot")
        || details.contains("accessing undeclared key")
}

/// Reads a time of the script: whole microseconds.
fn time_of(bytes: [u8; 8]) -> Result<u64> {
    let time = f64::from_le_bytes(bytes);
    if (0.0..MAX_TIME).contains(&time) && time.fract() == 0.0 { Ok(time as u64) } else { Err(garbled("no time")) }
}

/// The kind of a reply. Its content is not shown, because it may be an answer to another program.
const fn shape(reply: &Value) -> &'static str {
    match reply {
        Value::Array(_) => "a list",
        Value::BulkString(_) => "a text",
        Value::Int(_) => "a number",
        Value::Nil => "nothing",
        _ => "another kind of reply",
    }
}

/// Answers from a stored value as a peek at that time would. `None` for a value of other limits, and for a policy with
/// a `sliding-log`, because its log is another key.
pub(crate) fn answer_of_value(plan: &Plan, value: &[u8], now: u64) -> Option<Answer> {
    let has_log = plan.rules.iter().any(|rule| matches!(rule, Rule::SlidingLog(_)));
    if value.is_empty() || has_log {
        return None;
    }
    let context = ViewContext { now, operation: &Operation::peek(1), granted: None };
    let (views, annex) = stored_value::read(plan, value, context, &mut States::default())?;
    let blocked_until = annex.blocked_until;
    let rare = annex.into_rare_answer(now);
    Some(Answer { applied: true, now, blocked_until, views, rare, source: Source::Store, ..Answer::default() })
}

/// The answer to one request. `applied` is false if it was refused, `charged` is true if an admitted one stays charged.
fn answer(request: &Request, now: u64, applied: bool, charged: bool, item: Value) -> Result<Answer> {
    let mut answer = Answer { applied, now, source: Source::Store, ..Answer::default() };
    match (&request.operation, item) {
        (_, Value::ServerError(error)) if error.code() == "OVERRIDE" => {
            let text = error.details().unwrap_or_default();
            let own = text.strip_prefix('=').map(|text| ChangedOverride::To(text.trim().to_owned()));
            let answer = Answer::not_made(own.unwrap_or(ChangedOverride::OfAnother), now);
            Ok(Answer { source: Source::Store, ..answer })
        }
        (_, Value::ServerError(error)) if error.code() == "TIDEGATEFULL" => {
            Err(Error::too_many_overrides(request.plan.policy.name(), MAX_OVERRIDDEN_KEYS))
        }
        (_, Value::ServerError(error)) => Err(rejected(&error)),
        (Operation::NoteOverride(_), _) => Ok(answer),
        (Operation::ListOverrides, Value::Array(items)) => {
            let pairs = items.chunks_exact(2).filter_map(stored_override);
            answer.rare.get_or_insert_default().overrides =
                pairs.filter(|own| own.ends == 0 || own.ends > now).collect();
            Ok(answer)
        }
        (Operation::Journal, Value::Array(items)) => {
            // The list expires as a whole, but each attempt has its own time.
            let live = |attempt: &Attempt| attempt.at + request.plan.journal_life() > now;
            answer.rare.get_or_insert_default().attempts = items.iter().filter_map(attempt).filter(live).collect();
            Ok(answer)
        }
        (operation, Value::BulkString(mut bytes)) => {
            let grants = applied && charged;
            answer.granted = match operation {
                Operation::Take { cost, .. } => taken(&mut bytes, *cost, grants)?,
                Operation::Lease(terms) => taken(&mut bytes, terms.units, grants)?,
                operation if grants => operation.consumes(),
                _ => 0,
            };
            let turn_at = if matches!(operation, Operation::Turn { .. }) { turn_at(&mut bytes, now)? } else { 0 };
            let context = ViewContext { now: now.max(turn_at), operation, granted: grants.then_some(answer.granted) };
            let mut states = Box::default();
            let (views, annex) = stored_value::read(&request.plan, &bytes, context, &mut states).ok_or_else(|| {
                Error::new(ErrorKind::StoreRejected, format!("Redis's key holds a broken state{ADVICE_OF_STATE}"))
            })?;
            (answer.views, answer.blocked_until) = (views, annex.blocked_until);
            answer.rare = annex.into_rare_answer(now);
            answer.states = Some(states);
            if turn_at > now {
                answer.rare.get_or_insert_default().turn_at = turn_at;
            }
            if let (Operation::Acquire { .. }, false) = (operation, applied) {
                answer.yield_to_others();
            }
            Ok(answer)
        }
        (_, other) => Err(garbled(shape(&other))),
    }
}

/// Removes the moment of a turn from the end of the item, and returns it. It is 0 if the turn was refused.
fn turn_at(item: &mut Vec<u8>, now: u64) -> Result<u64> {
    let wrong = || garbled("a turn that cannot be");
    let (value, last) = item.split_last_chunk().ok_or_else(wrong)?;
    let (length, moment) = (value.len(), f64::from_le_bytes(*last));
    item.truncate(length);
    let is_possible = moment == 0.0 || (now as f64..MAX_TIME).contains(&moment) && moment.fract() == 0.0;
    if is_possible { Ok(moment as u64) } else { Err(wrong()) }
}

/// Removes the units that a take has charged from the end of the item, and returns them.
fn taken(item: &mut Vec<u8>, cost: u64, grants: bool) -> Result<u64> {
    let wrong = || garbled("a grant that cannot be");
    let (value, last) = item.split_last_chunk().ok_or_else(wrong)?;
    let (length, units) = (value.len(), f64::from_le_bytes(*last));
    let least = if grants { 1.0 } else { 0.0 };
    let most = if grants { cost as f64 } else { 0.0 };
    if !(least..=most).contains(&units) || units.fract() != 0.0 {
        return Err(wrong());
    }
    item.truncate(length);
    Ok(units as u64)
}

/// Reads an attempt as `add_to_journal` of `lua/slow_path.lua` writes it.
fn attempt(item: &Value) -> Option<Attempt> {
    let Value::BulkString(bytes) = item else { return None };
    let (at, rest) = bytes.split_first_chunk::<8>()?;
    let (cost, rest) = rest.split_first_chunk::<8>()?;
    let (allowed, meta) = rest.split_first()?;
    let number = |bytes: &[u8; 8]| Some(f64::from_le_bytes(*bytes)).filter(|number| (0.0..MAX_TIME).contains(number));
    Some(Attempt {
        at: number(at)? as u64,
        cost: number(cost)? as u64,
        allowed: *allowed == 1,
        meta: (!meta.is_empty()).then(|| meta.to_vec()),
    })
}

/// Reads an item of the list of overrides: the key, and '<d' with its end before the text.
fn stored_override(pair: &[Value]) -> Option<StoredOverride> {
    let [Value::BulkString(key), Value::BulkString(value)] = pair else { return None };
    let (ends, text) = value.split_first_chunk()?;
    let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(StoredOverride { key: text_of(key)?, text: text_of(text)?, ends: f64::from_le_bytes(*ends) as u64 })
}

/// The advice for a key that holds no state of this version of Tidegate.
const ADVICE_OF_STATE: &str = ": clear the key, which forgets its usage. If another program, or a newer Tidegate, writes \
    under this prefix, use another prefix";

fn garbled(what: &str) -> Error {
    Error::new(
        ErrorKind::StoreRejected,
        format!(
            "Redis answered with something that is not an answer of Tidegate's script ({what}): is this a Redis or Valkey \
             server?"
        ),
    )
}

/// The error of a call that the server refused. The server's text holds no secret of ours.
pub(crate) fn rejected(error: &redis::ServerError) -> Error {
    let (code, detail) = (error.code(), error.details().unwrap_or_default());
    let advice = match code {
        "WRONGTYPE" => ": another program uses this key: choose another prefix",
        "OOM" => {
            ": the server is at its maxmemory: raise it, or give the limits a separate server. Do not let it evict keys, \
             because that would forget limits"
        }
        "READONLY" => ": this server is a replica: connect to the primary",
        "NOPERM" => {
            ": the ACL user lacks a command or a key pattern that Tidegate needs, which `tidegate doctor` lists"
        }
        // The words of Redis 7 and Valkey about a script.
        _ if detail.contains("user executing the script") || detail.contains("ACL failure in script") => {
            ": the ACL user lacks a command or a key pattern that Tidegate needs, which `tidegate doctor` lists"
        }
        _ if detail.starts_with("DB index is out of range") => {
            ": the server does not have the database at the end of the store URL. Its setting `databases` counts them"
        }
        "NOAUTH" | "WRONGPASS" => ": give the right user and password in the store URL",
        "TIDEGATE" => ADVICE_OF_STATE,
        _ => "",
    };
    Error::new(ErrorKind::StoreRejected, format!("Redis refused: {code} {}{advice}", detail.trim()))
}
