//! The state of a call under way, and the rule for a call that a server did not serve.

use std::time::{Duration, Instant};

use super::failure::{self, Failure};
use super::server_directory::Target;
use crate::error::Error;
use crate::store::url::Address;

/// How long a call waits before it is sent again to servers that could not serve it.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// The most redirects of a call. While slots are being moved, one or two are normal.
const MAX_REDIRECTS: u32 = 16;
/// From this redirect on, a call pauses at every second one, each time twice as long, so that the servers can agree.
const REDIRECTS_WITHOUT_PAUSE: u32 = 4;

/// The target of a call, its deadlines, and the history of its attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallState {
    /// When its caller gives it up.
    pub(crate) deadline: Instant,
    /// When the current attempt is given up.
    pub(crate) attempt_deadline: Instant,
    /// The kind of server that it goes to, or went to last.
    pub(crate) target: Target,
    /// True if a replica may answer it.
    may_read_replica: bool,
    /// True if it is sent by itself, for example after a server turned it away as a member of a batch.
    pub(crate) alone: bool,
    /// True if it was a member of a batch that was counted.
    pub(crate) is_counted: bool,
    /// True if a server did not serve it.
    was_tried: bool,
    /// The number of redirects so far.
    redirects: u32,
    /// How long it waits before it is sent again, if it waits.
    pause: Duration,
}

/// Why a server did not serve a call. Only after `Failed` may the call have run.
#[derive(Debug, Clone)]
pub(crate) enum Obstacle {
    Failed(Failure),
    /// The reply names the server of the slot.
    Moved(u16, Address),
    /// That server serves the call this time.
    Ask(Address),
    /// Its keys are on their way from one node to another.
    Split(Error),
    /// This server is not the primary, or serves no call for now. Another one may.
    WrongServer(Error),
}

/// The next step of a call.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// It goes to the server of its slot.
    Route,
    /// It goes to that server, after ASKING.
    Ask(Address),
    /// It goes to the server of its slot after a pause. If the pause would end too late, it fails.
    RouteAfterPause(Error),
    /// It goes to the server of its slot after a new discovery. If that names the same server, it fails.
    RouteAfterDiscovery(Failure),
    Fail(Failure),
}

/// The consequences of an obstacle.
#[derive(Debug)]
pub(crate) struct Consequence {
    pub(crate) next: NextStep,
    /// The topology may be wrong.
    pub(crate) topology_is_stale: bool,
    /// That server serves that slot.
    pub(crate) moved: Option<(u16, Address)>,
    /// The connection is replaced, unless a batch is in flight on it: the server may have another role now.
    pub(crate) reconnect: bool,
}

impl CallState {
    pub(crate) const fn new(deadline: Instant, may_read_replica: bool) -> Self {
        Self {
            deadline,
            attempt_deadline: deadline,
            target: Target::Primary,
            may_read_replica,
            alone: false,
            is_counted: false,
            was_tried: false,
            redirects: 0,
            pause: RETRY_PAUSE,
        }
    }

    /// The state of a call that is never a member of a batch.
    pub(crate) const fn by_itself(deadline: Instant) -> Self {
        Self { alone: true, ..Self::new(deadline, false) }
    }

    /// True if it may go to a replica. Only the first attempt may.
    pub(crate) const fn prefers_replica(&self) -> bool {
        self.may_read_replica && !self.was_tried
    }

    /// True if a server has already had it.
    pub(crate) const fn was_tried(&self) -> bool {
        self.was_tried
    }

    /// Begins an attempt at such a server. A replica gets half of the time, so that time is left for the primary.
    pub(crate) fn begin_attempt(&mut self, target: Target, now: Instant) {
        self.target = target;
        self.attempt_deadline = match target {
            Target::Primary => self.deadline,
            Target::Replica => now + self.deadline.saturating_duration_since(now) / 2,
        };
    }

    /// The end of a pause, or `None` if that is too late for the call.
    pub(crate) fn pause(&self, now: Instant) -> Option<Instant> {
        let until = now + self.pause;
        (self.deadline > until + RETRY_PAUSE).then_some(until)
    }

    /// The one rule for redirects and retries. `several` is true if the store has several servers. `shown` is its name.
    pub(crate) fn after(&mut self, obstacle: Obstacle, several: bool, shown: &str) -> Consequence {
        let from = self.target;
        self.target = Target::Primary;
        (self.was_tried, self.pause) = (true, RETRY_PAUSE);
        let next = |next| Consequence { next, topology_is_stale: false, moved: None, reconnect: false };
        let stale = |next| Consequence { next, topology_is_stale: true, moved: None, reconnect: false };
        match obstacle {
            // The primary answers instead.
            Obstacle::Failed(failure) if from == Target::Replica && failure.server_failed => stale(NextStep::Route),
            _ if from == Target::Replica => next(NextStep::Route),
            Obstacle::Failed(failure) if !several || !failure.server_failed => next(NextStep::Fail(failure)),
            Obstacle::Failed(failure) if failure.may_have_run => stale(NextStep::Fail(failure)),
            Obstacle::Failed(failure) => stale(NextStep::RouteAfterDiscovery(failure)),
            Obstacle::Moved(slot, address) => {
                let step = self.redirected(NextStep::Route, shown);
                Consequence { moved: Some((slot, address)), ..stale(step) }
            }
            Obstacle::Ask(address) => next(self.redirected(NextStep::Ask(address), shown)),
            Obstacle::Split(error) => next(NextStep::RouteAfterPause(error)),
            Obstacle::WrongServer(error) => Consequence { reconnect: true, ..stale(NextStep::RouteAfterPause(error)) },
        }
    }

    /// Counts a redirect. Returns `step`, unless there were so many that the servers do not agree who serves the call.
    fn redirected(&mut self, step: NextStep, shown: &str) -> NextStep {
        self.redirects += 1;
        let late = self.redirects.checked_sub(REDIRECTS_WITHOUT_PAUSE);
        match late {
            _ if self.redirects > MAX_REDIRECTS => NextStep::Fail(Failure::of_call(failure::redirected(shown))),
            Some(late) if late.is_multiple_of(2) => {
                self.pause = RETRY_PAUSE * 2_u32.pow(late / 2);
                NextStep::RouteAfterPause(failure::redirected(shown))
            }
            _ => step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn call(replica: bool) -> CallState {
        let now = Instant::now();
        let mut call = CallState::new(now + Duration::from_secs(1), true);
        call.begin_attempt(if replica { Target::Replica } else { Target::Primary }, now);
        call
    }

    fn failure(may_have_run: bool) -> Obstacle {
        let error = Error::new(ErrorKind::StoreUnavailable, "gone");
        Obstacle::Failed(Failure { may_have_run, ..Failure::of_server(error) })
    }

    #[test]
    fn a_call_that_may_have_run_is_not_sent_again() {
        let after = call(false).after(failure(true), true, "s");
        assert!(matches!(after.next, NextStep::Fail(_)) && after.topology_is_stale);
        assert!(matches!(call(false).after(failure(false), true, "s").next, NextStep::RouteAfterDiscovery(_)));
        assert!(matches!(call(false).after(failure(false), false, "s").next, NextStep::Fail(_)));
    }

    #[test]
    fn a_read_that_a_replica_did_not_answer_goes_to_the_primary() {
        for obstacle in [failure(true), Obstacle::Ask(Address::Tcp("h".into(), 1))] {
            let mut call = call(true);
            assert!(call.attempt_deadline < call.deadline);
            assert!(matches!(call.after(obstacle, true, "s").next, NextStep::Route));
            assert!(!call.prefers_replica() && call.target == Target::Primary);
        }
    }

    #[test]
    fn a_call_is_sent_on_sixteen_times_and_waits_longer_each_time() {
        let address = || Address::Tcp("h".into(), 1);
        for obstacle in [Obstacle::Moved(1, address()), Obstacle::Ask(address())] {
            let (mut call, mut pauses, mut sent) = (call(false), Vec::new(), 0);
            let error = loop {
                match call.after(obstacle.clone(), true, "s").next {
                    NextStep::Fail(failure) => break failure.error,
                    NextStep::RouteAfterPause(_) => pauses.push(call.pause.as_millis()),
                    _ => {}
                }
                sent += 1;
                assert!(sent < 1_000, "it never ends");
            };
            assert_eq!((sent, pauses), (16, vec![5, 10, 20, 40, 80, 160, 320]));
            assert!(error.message().contains("from one to another"), "{error}");
        }
    }
}
