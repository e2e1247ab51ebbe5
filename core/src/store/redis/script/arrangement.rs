//! The order in which the script serves the requests of a call: first the checks that a loop of `lua/check.lua` serves,
//! grouped by their instruction, then all others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::request::Request;
use crate::plan::Plan;
use crate::store::request::Operation;
use crate::store::stored_key::StoredKey;

/// The most instructions of one policy that a request is compared with. A duplicate costs bytes, a longer search time.
const COMPARED_INSTRUCTIONS: usize = 8;

type HashMapOf<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// How the requests of one script call depend on each other. The script reads the number: see `lua/head.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Each request is decided alone.
    Independent,
    /// One refusal refuses all of them.
    AllOrNothing,
    /// The script reports if all would be admitted, and writes nothing.
    DryRun,
    /// All are refused. The effects of a refusal apply to the requests that a limit refuses, and to all journals.
    RecordRefusals,
}

/// A request in the order of the script.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// Its index in the requests.
    pub(super) request: u16,
    /// The index of its instruction.
    instruction: u16,
}

/// Requests of one key that are served one after the other.
type Members = SmallVec<[Member; 2]>;

/// Neighbouring keys with the same number of requests, all of one instruction.
#[derive(Debug, Clone, Copy)]
struct Run {
    instruction: u16,
    per_key: u16,
    keys: u16,
}

/// The requests of a call in the order of the script.
#[derive(Debug)]
pub(super) struct Arrangement {
    /// The distinct instructions, each as the index of a request that has it.
    pub(super) instructions: SmallVec<[u16; 1]>,
    /// The keys with their requests. A key comes again for requests with another instruction.
    keys: SmallVec<[Members; 1]>,
    /// The first keys, which the loops for checks serve.
    runs: SmallVec<[Run; 1]>,
}

impl Arrangement {
    pub(super) fn new(grouping: Grouping, requests: &[Request]) -> Self {
        match requests {
            [only] => {
                let run = Run { instruction: 0, per_key: 1, keys: 1 };
                let runs = if is_for_loops(grouping, only) { smallvec![run] } else { SmallVec::new() };
                Self {
                    instructions: smallvec![0],
                    keys: smallvec![smallvec![Member { request: 0, instruction: 0 }]],
                    runs,
                }
            }
            several => arranged(grouping, several),
        }
    }

    /// The requests in the order of the script.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.keys.iter().flatten().copied()
    }

    /// One request of each key of the script.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.keys.iter().map(|members| members[0].request)
    }

    /// True if the call begins with checks that a loop serves.
    pub(super) fn has_checks(&self) -> bool {
        !self.runs.is_empty()
    }

    /// True if each key has one request, and all have the same instruction. Then the call needs no program.
    pub(super) fn is_uniform(&self) -> bool {
        self.instructions.len() == 1 && self.keys.iter().all(|members| members.len() == 1)
    }

    /// The program of the call, as `lua/head.lua` describes it. In `times` the edges of all calendars hold.
    pub(super) fn program(&self, times: Times) -> Vec<u8> {
        let mut program = Vec::with_capacity(18 + 6 * self.runs.len() + 4 * self.keys.len());
        let push = |program: &mut Vec<u8>, number: u16| program.extend_from_slice(&number.to_le_bytes());
        if self.has_checks() {
            program.extend_from_slice(&(times.from as f64).to_le_bytes());
            program.extend_from_slice(&(times.until as f64).to_le_bytes());
            push(&mut program, self.runs.len() as u16);
            for run in &self.runs {
                [run.instruction + 1, run.per_key, run.keys].into_iter().for_each(|number| push(&mut program, number));
            }
        }
        let served: usize = self.runs.iter().map(|run| usize::from(run.keys)).sum();
        for members in &self.keys[served..] {
            push(&mut program, members.len() as u16);
            members.iter().for_each(|member| push(&mut program, member.instruction + 1));
        }
        program
    }
}

/// The times at which the edges in a call are those of its calendars.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Times {
    pub(super) const ALL: Self = Self { from: 0, until: crate::algorithm::MAX_SAFE_INTEGER };

    /// The times that are in both.
    pub(super) fn within(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), until: self.until.min(other.until) }
    }
}

/// True if a loop of `lua/check.lua` serves the request in such a call.
fn is_for_loops(grouping: Grouping, request: &Request) -> bool {
    grouping == Grouping::Independent
        && matches!(request.operation, Operation::Check { hold: 0, .. })
        && request.plan.stored_override().is_empty()
        && (request.operation.amounts().is_none() || request.only_units().is_some())
        && !request.remembers_refusals()
        && request.plan.policy.learning().is_none()
        && request.plan.stored.has_loop
}

/// Successive requests of one key with one instruction. `round` counts such series of the key before this one.
struct Series {
    round: u16,
    /// The index of the key.
    key: u16,
    members: Members,
}

impl Series {
    /// The series of a run have these in common. Series of later rounds come behind.
    fn run(&self) -> (u16, u16, usize) {
        (self.round, self.members[0].instruction, self.members.len())
    }
}

fn arranged(grouping: Grouping, requests: &[Request]) -> Arrangement {
    let (instructions, of_requests) = distinct(requests);
    let for_loops: SmallVec<[bool; 1]> =
        instructions.iter().map(|request| is_for_loops(grouping, &requests[usize::from(*request)])).collect();
    let mut keys: SmallVec<[Members; 1]> = SmallVec::with_capacity(requests.len());
    let mut known: HashMapOf<&StoredKey, usize> = HashMap::with_capacity_and_hasher(requests.len(), Default::default());
    for (request, instruction) in (0..).zip(of_requests) {
        let key = *known.entry(&requests[usize::from(request)].redis_key).or_insert_with(|| {
            keys.push(Members::new());
            keys.len() - 1
        });
        keys[key].push(Member { request, instruction });
    }
    if !for_loops.contains(&true) {
        return Arrangement { instructions, keys, runs: SmallVec::new() };
    }
    let (mut series, mut others) = (Vec::with_capacity(keys.len()), SmallVec::<[Members; 1]>::new());
    for (key, members) in (0..).zip(keys) {
        // Requests behind one that no loop serves must wait for it.
        let served = members.iter().take_while(|member| for_loops[usize::from(member.instruction)]).count();
        let of_loops = members[..served].chunk_by(|one, next| one.instruction == next.instruction);
        series.extend((0..).zip(of_loops).map(|(round, members)| Series { round, key, members: members.into() }));
        if served < members.len() {
            others.push(members[served..].into());
        }
    }
    series.sort_unstable_by_key(|series| (series.run(), series.key));
    let runs = series.chunk_by(|one, next| one.run() == next.run());
    let runs = runs.map(|series| Run {
        instruction: series[0].members[0].instruction,
        per_key: series[0].members.len() as u16,
        keys: series.len() as u16,
    });
    let runs = runs.collect();
    Arrangement { instructions, keys: series.into_iter().map(|one| one.members).chain(others).collect(), runs }
}

/// The distinct instructions of requests, and the instruction of each request.
fn distinct(requests: &[Request]) -> (SmallVec<[u16; 1]>, Vec<u16>) {
    let mut instructions: SmallVec<[u16; 1]> = SmallVec::new();
    // The instructions of each policy, the newest last.
    let mut of_plans: HashMapOf<*const Plan, SmallVec<[u16; 2]>> = HashMap::default();
    let of_requests = (0..).zip(requests).map(|(index, request)| {
        let of_plan = match of_plans.entry(Arc::as_ptr(&request.plan)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(SmallVec::new()),
        };
        let is_same =
            |other: &&u16| requests[usize::from(instructions[usize::from(**other)])].operation == request.operation;
        if let Some(known) = of_plan.iter().rev().take(COMPARED_INSTRUCTIONS).find(is_same) {
            return *known;
        }
        instructions.push(index);
        let instruction = instructions.len() as u16 - 1;
        of_plan.push(instruction);
        instruction
    });
    let of_requests = of_requests.collect();
    (instructions, of_requests)
}
