//! Records the calls, the runs of servers and the answers to callers, and checks the invariants of ADR 11.

use std::collections::HashMap;

use super::commands::Effect;
use crate::error::{ErrorKind, Result};
use crate::store::redis::protocol::Callers;
use crate::store::request::Answer;

/// Callers are known by their number in the ledger.
#[derive(Default)]
pub(super) struct SimulatedCallers;

impl Callers for SimulatedCallers {
    type One = u64;
    type All = u64;
}

/// One request of a caller.
#[derive(Debug, Default)]
struct Request {
    /// The runs that charged it, each with its outcome.
    charges: Vec<(u64, bool)>,
    refunds: usize,
    reads: Vec<u64>,
    /// True if the caller only reads.
    is_read: bool,
}

/// A caller and its answer.
#[derive(Debug)]
struct Caller {
    deadline: u64,
    names: Vec<Vec<u8>>,
    /// When it called, and when it got its answer.
    called: u64,
    told: Option<u64>,
    succeeded: bool,
}

/// Records what happened to each call, and checks it.
#[derive(Default)]
pub(super) struct Ledger {
    requests: HashMap<Vec<u8>, Request>,
    callers: Vec<Caller>,
    runs: u64,
    /// True if calls may run twice, because an error that would send a call again may belong to another call. Even then
    /// a call gets its own answer.
    pub(super) tolerates_repeats: bool,
    /// True if servers have lied. Then any answer is possible, and a call may have run as often as they denied it. Even
    /// then every caller gets one answer in time.
    pub(super) believes_lies: bool,
    /// The number of callers without an answer.
    pub(super) waiting: usize,
}

impl Ledger {
    /// Adds a caller with requests for these names, and returns its number.
    pub(super) fn call(&mut self, names: Vec<Vec<u8>>, is_read: bool, called: u64, deadline: u64) -> u64 {
        let caller = self.callers.len() as u64;
        for name in &names {
            self.requests.insert(name.clone(), Request { is_read, ..Request::default() });
        }
        self.callers.push(Caller { deadline, names, called, told: None, succeeded: false });
        self.waiting += 1;
        caller
    }

    /// The number of the next script call that runs. Servers send it as their time.
    pub(super) const fn begin_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    /// A server runs a request.
    pub(super) fn run(&mut self, run: u64, name: &[u8], effect: Effect, dry: bool, admitted: bool) {
        let Some(request) = self.requests.get_mut(name) else { return };
        match effect {
            Effect::Charge if dry => request.reads.push(run),
            Effect::Charge => {
                request.charges.push((run, admitted));
                assert!(
                    self.tolerates_repeats || self.believes_lies || request.charges.len() <= 1,
                    "a call reached servers twice: {request:?}"
                );
            }
            Effect::Read => request.reads.push(run),
            Effect::Refund => {
                request.refunds += 1;
                let tolerated = self.tolerates_repeats || self.believes_lies;
                assert!(tolerated || request.refunds <= 1, "a call was given back twice: {request:?}");
            }
        }
    }

    /// A caller with one request gets its answer.
    pub(super) fn answer(&mut self, caller: u64, answer: &Result<Answer>, now: u64) {
        let name = self.tell(caller, answer.is_ok(), now);
        let Ok(answer) = answer else { return self.check_error(answer.as_ref().err().map(crate::error::Error::kind)) };
        if self.believes_lies {
            return;
        }
        let request = &self.requests[&name[0]];
        if request.is_read {
            assert!(request.reads.contains(&answer.now), "an answer to another call: {answer:?} for {request:?}");
        } else {
            let expected = (answer.now, answer.applied);
            assert!(self.tolerates_repeats || request.charges.len() == 1, "{request:?}");
            assert!(request.charges.contains(&expected), "an answer to another call: {answer:?} for {request:?}");
        }
    }

    /// A caller with several requests gets its answers.
    pub(super) fn answer_all(&mut self, caller: u64, answers: &Result<Vec<Answer>>, now: u64) {
        let names = self.tell(caller, answers.is_ok(), now);
        let Ok(answers) = answers else {
            return self.check_error(answers.as_ref().err().map(crate::error::Error::kind));
        };
        assert_eq!(answers.len(), names.len());
        if self.tolerates_repeats || self.believes_lies {
            return;
        }
        let admitted = answers.iter().all(|answer| answer.applied);
        for name in &names {
            let request = &self.requests[name];
            let charged = request.charges.iter().filter(|(_, admitted)| *admitted).count() - request.refunds;
            assert_eq!(charged, usize::from(admitted), "all or nothing: {request:?} of {answers:?}");
        }
    }

    fn check_error(&self, kind: Option<ErrorKind>) {
        let expected = [ErrorKind::StoreUnavailable, ErrorKind::StoreTimeout, ErrorKind::StoreRejected];
        // The server claims to be of another kind than the URL.
        let lied = self.believes_lies && kind == Some(ErrorKind::ConfigInvalid);
        assert!(lied || kind.is_some_and(|kind| expected.contains(&kind)), "{kind:?} is no failure of a store");
    }

    fn tell(&mut self, caller: u64, succeeded: bool, now: u64) -> Vec<Vec<u8>> {
        let caller = &mut self.callers[caller as usize];
        assert!(caller.told.is_none(), "a caller is told twice");
        (caller.told, caller.succeeded) = (Some(now), succeeded);
        self.waiting -= 1;
        caller.names.clone()
    }

    /// The earliest deadline of the callers that wait.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        self.callers.iter().filter(|caller| caller.told.is_none()).map(|caller| caller.deadline).min()
    }

    /// Checks that every caller was told, and that those from that number on succeeded.
    pub(super) fn check_end(&self, healthy_from: usize) {
        for (number, caller) in self.callers.iter().enumerate() {
            assert!(caller.told.is_some(), "a caller is never told: {caller:?}");
            assert!(caller.succeeded || number < healthy_from, "a call that could be served was not: {caller:?}");
        }
    }

    /// Checks that the callers from that number on were told soon: no call waits for a timer after its reply has come.
    pub(super) fn check_latency(&self, from: usize, most: u64) {
        for caller in &self.callers[from..] {
            let latency = caller.told.map(|told| told - caller.called);
            assert!(latency.is_some_and(|latency| latency <= most), "a call waited for a timer: {caller:?}");
        }
    }

    pub(super) fn count(&self) -> usize {
        self.callers.len()
    }
}
