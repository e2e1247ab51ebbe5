//! Checks in, one script call out; its reply in, answers out. No I/O.

mod stored_value;

use std::collections::HashMap;
use std::sync::Arc;

use once_cell::sync::Lazy;
use redis::{Cmd, Value};
use smallvec::SmallVec;

use self::stored_value::Asked;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::store::request::{Answer, Attempt, Entry, Operation, Source};

/// The script: the same rules as `algorithm/`, file by file.
static SOURCE: &str = concat!(
    include_str!("lua/head.lua"),
    include_str!("lua/meter.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/calendar_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/leaky_bucket.lua"),
    include_str!("lua/concurrency.lua"),
    include_str!("lua/fast_path.lua"),
    include_str!("lua/value.lua"),
    include_str!("lua/slow_path.lua"),
    include_str!("lua/main.lua"),
);

static SCRIPT: Lazy<redis::Script> = Lazy::new(|| redis::Script::new(SOURCE));

/// The grouping that stands for `lua/fast_path.lua`.
const PLAIN: u8 = 4;

/// What a reply of `lua/fast_path.lua` to a single entry begins with: the time, and how many were refused.
const LONE: usize = 9;

/// The name of a policy and key in Redis: the prefix and 12 bytes of a digest. See docs/adr/0003.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(SmallVec<[u8; 24]>);

impl Name {
    pub(crate) fn new(prefix: &str, policy: &str, key: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        hasher.update(&(policy.len() as u32).to_le_bytes()).update(policy.as_bytes()).update(key.as_bytes());
        let digest = hasher.finalize();
        // Braces would change the hash slot, so bytes that are braces are passed over.
        let bytes = digest.as_bytes().iter().filter(|byte| !b"{}".contains(byte)).take(12);
        Self(prefix.bytes().chain(bytes.copied()).collect())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A second key of the same slot.
    fn companion(&self, prefix: &str, kind: u8) -> Vec<u8> {
        [prefix.as_bytes(), &[b':', kind, b':', b'{'], &self.0, b"}"].concat()
    }
}

/// One thing to do, ready to travel.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) plan: Arc<Plan>,
    pub(crate) name: Name,
    pub(crate) operation: Operation,
    /// Of a refund: when the very units were charged that are to be given back, and no others.
    pub(crate) charged_at: Option<u64>,
}

impl Request {
    pub(crate) fn new(prefix: &str, entry: &Entry<'_>) -> Self {
        Self {
            plan: Arc::clone(entry.plan),
            name: Name::new(prefix, entry.plan.policy.name(), entry.key),
            operation: entry.operation.clone(),
            charged_at: None,
        }
    }

    /// What undoes a check that was admitted at that moment.
    pub(crate) fn undo(&self, at: u64) -> Self {
        Self { operation: Operation::Refund { cost: self.operation.cost() }, charged_at: Some(at), ..self.clone() }
    }

    /// Whether being refused changes something, or is written down.
    pub(crate) fn remembers_refusals(&self) -> bool {
        let options = self.plan.policy.options();
        options.count_denied || options.block_for.is_some() || options.journal > 0 || self.plan.grace > 0
    }
}

/// How the requests of one script call depend on each other. The script reads the number: see `lua/head.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Each request is decided alone.
    Independent,
    /// One refusal refuses all of them.
    AllOrNothing,
    /// The script says whether all would be admitted and writes nothing.
    DryRun,
    /// All are refused. The script does what a refusal does, to the requests that a limit refuses and to all journals.
    RecordRefusals,
}

/// Requests that travel as one call.
#[derive(Debug)]
pub(crate) struct Batch {
    prefix: Arc<str>,
    now: Option<u64>,
    grouping: Grouping,
    requests: Vec<Request>,
    /// The distinct asks, as the number of the request that first made each.
    asks: Vec<u16>,
    /// For each key, in the order they appeared, its requests and their asks.
    runs: Vec<SmallVec<[(u16, u16); 2]>>,
}

impl Batch {
    /// `now` is the time to decide by, `None` the server's.
    pub(crate) fn new(prefix: Arc<str>, now: Option<u64>, grouping: Grouping, requests: Vec<Request>) -> Self {
        let mut asks: Vec<u16> = Vec::new();
        let mut runs: Vec<SmallVec<[(u16, u16); 2]>> = Vec::with_capacity(requests.len());
        let mut known: HashMap<&Name, usize, foldhash::fast::RandomState> = HashMap::default();
        for (index, request) in requests.iter().enumerate() {
            let like = |other: &u16| {
                let other = &requests[usize::from(*other)];
                Arc::ptr_eq(&other.plan, &request.plan)
                    && other.operation == request.operation
                    && other.charged_at == request.charged_at
            };
            // The newest asks are the likely ones; a duplicate costs bytes, a search costs every entry.
            let ask = asks.iter().enumerate().rev().take(8).find(|(_, other)| like(other)).map(|(at, _)| at);
            let ask = ask.unwrap_or_else(|| {
                asks.push(index as u16);
                asks.len() - 1
            });
            let run = *known.entry(&request.name).or_insert_with(|| {
                runs.push(SmallVec::new());
                runs.len() - 1
            });
            runs[run].push((index as u16, ask as u16));
        }
        drop(known);
        Self { prefix, now, grouping, requests, asks, runs }
    }

    pub(crate) const fn now(&self) -> Option<u64> {
        self.now
    }

    pub(crate) const fn grouping(&self) -> Grouping {
        self.grouping
    }

    /// In the order they were given.
    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The same, to be sent another way.
    pub(crate) fn into_requests(self) -> Vec<Request> {
        self.requests
    }

    /// Whether `lua/fast_path.lua` can serve the first ask.
    fn is_plain(&self) -> bool {
        let request = &self.requests[0];
        let checks = matches!(request.operation, Operation::Check { .. }) && self.grouping == Grouping::Independent;
        checks && !request.remembers_refusals() && !request.plan.has_lists()
    }

    fn has_companions(&self) -> bool {
        self.requests.iter().any(|request| request.plan.has_companions())
    }

    /// The call, by the script's digest.
    pub(crate) fn command(&self) -> Cmd {
        self.call("EVALSHA", SCRIPT.get_hash())
    }

    /// The call with the whole script, for a server that does not know it.
    pub(crate) fn command_in_full(&self) -> Cmd {
        self.call("EVAL", SOURCE)
    }

    fn call(&self, verb: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(verb);
        let stride = if self.has_companions() { 3 } else { 1 };
        cmd.arg(script).arg(self.runs.len() * stride);
        for run in &self.runs {
            let name = &self.requests[usize::from(run[0].0)].name;
            cmd.arg(name.as_bytes());
            if stride == 3 {
                cmd.arg(name.companion(&self.prefix, b'l')).arg(name.companion(&self.prefix, b'j'));
            }
        }
        let program = self.program();
        let grouping = if program.is_empty() && self.is_plain() { PLAIN } else { self.grouping as u8 };
        let mut head = Vec::with_capacity(14);
        head.extend_from_slice(&self.now.map_or(-1.0, |now| now as f64).to_le_bytes());
        head.extend_from_slice(&[stride as u8, grouping]);
        head.extend_from_slice(&(self.asks.len() as u16).to_le_bytes());
        head.extend_from_slice(&(self.runs.len() as u16).to_le_bytes());
        cmd.arg(head).arg(program);
        for ask in &self.asks {
            cmd.arg(written(&self.requests[usize::from(*ask)]));
        }
        cmd
    }

    /// Empty when every key has one entry of the only ask.
    fn program(&self) -> Vec<u8> {
        if self.asks.len() == 1 && self.runs.len() == self.requests.len() {
            return Vec::new();
        }
        let mut program = Vec::with_capacity(2 * (self.runs.len() + self.requests.len()));
        for run in &self.runs {
            program.extend_from_slice(&(run.len() as u16).to_le_bytes());
            for (_, ask) in run {
                program.extend_from_slice(&(ask + 1).to_le_bytes());
            }
        }
        program
    }

    /// The answers, in the order of the requests.
    pub(crate) fn answers(&self, reply: Value) -> Result<Vec<Result<Answer>>> {
        let (now, refused, mut items) = match reply {
            Value::Array(items) => {
                let mut items = items.into_iter();
                let (Some(Value::Int(now)), Some(Value::Array(refused))) = (items.next(), items.next()) else {
                    return Err(garbled("no time and no list of refusals"));
                };
                (now as u64, refused, items)
            }
            // To one that was alone.
            Value::BulkString(mut text) if text.len() >= LONE => {
                let value = text.split_off(LONE);
                let (now, refused) = (f64::from_le_bytes(*text.first_chunk().unwrap_or(&[0; 8])), text[LONE - 1]);
                (now as u64, vec![Value::Int(1); refused.into()], vec![Value::BulkString(value)].into_iter())
            }
            Value::ServerError(error) => return Err(rejected(&error)),
            other => return Err(garbled(&format!("{other:?}"))),
        };
        // For each the limits that refused it, which the script only tells where the value does not.
        let mut denied: Vec<Option<u16>> = vec![None; self.requests.len()];
        for number in refused {
            if let Value::Int(number) = number
                && let Some(slot) = usize::try_from((number & 0xffff) - 1).ok().and_then(|at| denied.get_mut(at))
            {
                *slot = Some((number >> 16) as u16);
            }
        }
        // While all stand or fall together, one that fails leaves nothing charged.
        let together = self.grouping != Grouping::Independent;
        let admits = |((index, _), denied): ((u16, u16), &Option<u16>)| {
            denied.is_none() || self.requests[usize::from(index)].plan.policy.options().shadow
        };
        let stands = match self.grouping {
            Grouping::Independent => true,
            Grouping::AllOrNothing => self.order().zip(&denied).all(admits),
            Grouping::DryRun | Grouping::RecordRefusals => false,
        };
        let mut answers: Vec<Option<Result<Answer>>> = self.requests.iter().map(|_| None).collect();
        for ((index, _), denied) in self.order().zip(denied) {
            let item = items.next().ok_or_else(|| garbled("too few answers"))?;
            let request = &self.requests[usize::from(index)];
            let checks = matches!(request.operation, Operation::Check { .. });
            let told = checks && (together || request.plan.policy.options().count_denied);
            let answer = answer(request, now, denied.is_none(), stands, item);
            answers[usize::from(index)] =
                Some(answer.map(|answer| Answer { refused: denied.filter(|_| told), ..answer }));
        }
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(garbled("too few answers")))).collect())
    }

    /// Requests and asks in the order of the script.
    fn order(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.runs.iter().flatten().copied()
    }
}

/// See `parse` in `lua/value.lua`.
fn written(request: &Request) -> Vec<u8> {
    let (plan, options) = (&request.plan, request.plan.policy.options());
    let none: &[u8] = &[];
    let block_for = options.block_for.map_or(0, crate::policy::Period::micros);
    let (operation, block, hold, meta) = match &request.operation {
        Operation::Check { hold, meta, .. } => (1, block_for, *hold, meta.as_deref().unwrap_or(none)),
        Operation::Peek { .. } => (2, 0, 0, none),
        Operation::Charge { .. } => (3, 0, 0, none),
        Operation::Refund { .. } => request.charged_at.map_or((4, 0, 0, none), |at| (10, at, 0, none)),
        Operation::Block { micros } => (5, *micros, 0, none),
        Operation::Renew { hold } => (6, 0, *hold, none),
        Operation::Close { hold } => (7, 0, *hold, none),
        Operation::Clear => (8, 0, 0, none),
        Operation::Journal => (9, 0, 0, none),
    };
    let cost = match request.operation {
        Operation::Charge { cost } | Operation::Refund { cost } => cost,
        ref operation => operation.cost(),
    };
    let flags = u8::from(options.shadow)
        | u8::from(options.count_denied) << 1
        | u8::from(plan.grace > 0) << 2
        | u8::from(block > 0) << 3
        | u8::from(hold > 0) << 4;
    let ask = &plan.script_arguments;
    let mut out = Vec::with_capacity(ask.compact_form.len() + ask.slow_path.len() + ask.limits.len() + meta.len() + 40);
    let double = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&(number as f64).to_le_bytes());
    out.extend_from_slice(&[operation, flags, plan.rules.len() as u8, ask.slots]);
    double(&mut out, cost);
    out.extend_from_slice(&ask.compact_form);
    out.extend_from_slice(&ask.limits);
    out.extend_from_slice(&(ask.slow_path.len() as u16 + 34).to_le_bytes());
    double(&mut out, block);
    double(&mut out, hold);
    out.extend_from_slice(&(options.journal as u16).to_le_bytes());
    double(&mut out, plan.journal_life() / 1_000 + 500);
    double(&mut out, plan.grace);
    out.extend_from_slice(&ask.slow_path);
    out.extend_from_slice(meta);
    out
}

fn answer(request: &Request, now: u64, applied: bool, stands: bool, item: Value) -> Result<Answer> {
    let mut answer = Answer { applied, now, source: Source::Store, ..Answer::default() };
    match (&request.operation, item) {
        (_, Value::ServerError(error)) => Err(rejected(&error)),
        (Operation::Journal, Value::Array(items)) => {
            // The list expires as a whole; what is too old is told by its own time.
            let live = |attempt: &Attempt| attempt.at + request.plan.journal_life() > now;
            answer.attempts = Some(Box::new(items.iter().filter_map(attempt).filter(live).collect()));
            Ok(answer)
        }
        (operation, Value::BulkString(bytes)) => {
            let charged = match operation {
                Operation::Check { cost, .. } if applied && stands => *cost,
                _ => 0,
            };
            let asked = Asked { now, cost: operation.cost(), charged };
            let repeats = !applied && matches!(operation, Operation::Check { .. }) && request.plan.repeats_denials();
            answer.states = repeats.then(Box::default);
            let states = answer.states.as_deref_mut();
            (answer.views, answer.blocked_until) = match operation {
                Operation::Clear => (request.plan.unused_views(now, 1), 0),
                _ => stored_value::read(&request.plan, &bytes, asked, states)
                    .ok_or_else(|| garbled("a state that cannot be read"))?,
            };
            Ok(answer)
        }
        (_, other) => Err(garbled(&format!("{other:?}"))),
    }
}

/// See `note` in `lua/slow_path.lua`.
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

/// What a server's error means to a caller. The text of the server tells no secret of ours.
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
