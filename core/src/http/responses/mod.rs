//! Reads the limits of another service from its responses
//! ([ADR 0038](https://github.com/tidegate/tidegate/blob/main/docs/adr/0038-what-a-response-says.md)).
//!
//! `dialects.rs` is the table of the fields that are read, and `body.rs` the table for bodies. `waits.rs` reads lengths of
//! time and moments, `structured.rs` reads structured fields, and `stated_limits.rs` combines the fields into limits.

mod body;
mod dialects;
mod stated_limits;
mod structured;
mod waits;

use std::time::Duration;

use self::dialects::Says;
use self::stated_limits::StatedLimits;
use self::waits::WaitReader;
use crate::policy::{TimeUnit, Unit};

/// The longest body that is read, in bytes.
pub const MAX_BODY: usize = 64 * 1_024;
/// The longest wait that is believed, unless a reader is given another.
pub const MAX_LEARNED_WAIT: Duration = Duration::from_secs(3_600);
/// A longer wait is not believed. Quotas are at most for a month.
pub(crate) const BELIEVABLE: Duration = Duration::from_micros(31 * TimeUnit::Day.micros());
/// The most Observations of one response.
pub const MAX_OBSERVATIONS: usize = 32;
/// The most fields of one response that are read.
const MAX_FIELDS: usize = 64;
/// The field that tells if a body is JSON.
const CONTENT_TYPE: &str = "content-type";
/// The longest value of a field that is read, in bytes.
const MAX_VALUE: usize = 4 * 1_024;
/// The wait after a refusal that names none.
const UNSAID_WAIT: Duration = Duration::from_secs(1);

/// The requests that a wait concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ObservationScope {
    /// The key of the request.
    #[default]
    Key,
    /// Every request to the service, if the service announces that.
    All,
}

impl ObservationScope {
    /// The word for it in Python and TypeScript.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::All => "all",
        }
    }
}

/// One limit as a response announces it, or the wait that the response asks for. `None` marks a value that it does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Observation {
    /// The name that the response gives the limit: of a policy, a bucket or a resource.
    pub name: Option<String>,
    /// The count of the limit.
    pub limit: Option<u64>,
    /// The length of time for which the count holds.
    pub window: Option<Duration>,
    /// The unit that the limit counts.
    pub unit: Option<Unit>,
    /// The units that are left. They are never more than `limit`.
    pub remaining: Option<u64>,
    /// The time until the limit is reset, or until more units are left if the response announces that. Zero if it has passed.
    pub reset_after: Option<Duration>,
    /// The time until the request may be made again.
    pub retry_after: Option<Duration>,
    /// The requests that `retry_after` concerns.
    pub scope: ObservationScope,
}

/// The limits that a response announces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ObservedResponse {
    /// An Observation for each limit. One with `retry_after` comes first, and no other has it.
    pub observations: Vec<Observation>,
    /// The number of values that were not believed: negative, a year long, no number, or too many.
    pub ignored: u32,
}

impl ObservedResponse {
    /// The wait that the response asks for, or the time until units are left again. The longest counts.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let wait_of = |said: &Observation| said.retry_after.max(said.reset_after.filter(|_| said.remaining == Some(0)));
        self.observations.iter().filter_map(wait_of).max()
    }
}

/// Reads responses that arrived at one moment.
///
/// ```
/// use std::time::Duration;
/// use tidegate::http::ResponseReader;
///
/// let read = ResponseReader::new(Duration::from_secs(1_700_000_000))
///     .status(429)
///     .read([("Retry-After", "30")], b"");
/// assert_eq!(read.observations[0].retry_after, Some(Duration::from_secs(30)));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ResponseReader {
    now: Duration,
    status: Option<u16>,
    max_wait: Duration,
}

impl ResponseReader {
    /// A reader of responses that arrived at this time since 1970, by the clock of this machine.
    #[must_use]
    pub const fn new(now: Duration) -> Self {
        Self { now, status: None, max_wait: MAX_LEARNED_WAIT }
    }

    /// The status of the response. Without it no body is read, and no response counts as a refusal.
    #[must_use]
    pub const fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The longest wait that is believed. A longer one is cut to it.
    #[must_use]
    pub const fn max_learned_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// True if the body of a response with this status is read.
    #[must_use]
    pub const fn reads_body(status: u16) -> bool {
        matches!(status, 403 | 429 | 503)
    }

    /// True if a call may be made again after a response with this status.
    #[must_use]
    pub const fn allows_retry(status: u16) -> bool {
        matches!(status, 429 | 503)
    }

    /// True if a field with this name is read.
    #[must_use]
    pub fn reads_field(name: &str) -> bool {
        dialects::find(name).is_some() || name.eq_ignore_ascii_case(CONTENT_TYPE)
    }

    /// A regular expression for the names, in lower case, of the fields about limits: all that are read but `Date`.
    /// Without such a field, only the status or the body of a response can be about limits.
    #[must_use]
    pub fn speaking_fields() -> String {
        dialects::speaking_fields()
    }

    /// True if only the body can name the wait: the head of a refusal names none, and the body is JSON.
    #[must_use]
    pub fn needs_body<N: AsRef<str>, V: AsRef<[u8]>>(&self, fields: &[(N, V)]) -> bool {
        let is_json = |(name, value): &(N, V)| {
            name.as_ref().eq_ignore_ascii_case(CONTENT_TYPE)
                && text(value).is_some_and(|kind| kind.to_ascii_lowercase().contains("json"))
        };
        let head = Self { status: None, ..*self };
        self.status.is_some_and(Self::reads_body)
            && fields.iter().any(is_json)
            && head.read(fields.iter().map(|(name, value)| (name, value)), b"").wait().is_none()
    }

    /// Reads a response with these fields and this body.
    ///
    /// Names of fields count in any case, and a field may be repeated. A body is not read if it is longer than
    /// [`MAX_BODY`], is not JSON, or if [`Self::reads_body`] is false for the status.
    pub fn read<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        fields: impl IntoIterator<Item = (N, V)>,
        body: &[u8],
    ) -> ObservedResponse {
        let mut ignored = 0_u32;
        let mut known = Vec::new();
        for (name, value) in fields {
            match dialects::find(name.as_ref()) {
                None => {}
                Some(_) if known.len() == MAX_FIELDS => ignored += 1,
                Some(found) => known.push((found, name, value)),
            }
        }
        // Nearly every response has a `Date`, but nothing that needs it.
        let speaks = known.iter().any(|((row, _), _, _)| !matches!(row.says, Says::Date));
        if !speaks && !self.status.is_some_and(Self::reads_body) {
            return ObservedResponse { observations: Vec::new(), ignored };
        }
        let mut waits = WaitReader::new(self.now, self.max_wait);
        for (_, _, value) in known.iter().filter(|((row, _), _, _)| matches!(row.says, Says::Date)) {
            match text(value).and_then(WaitReader::date) {
                Some(date) => waits.set_clock(date),
                None => ignored += 1,
            }
        }
        let mut response = ResponseWait { status: self.status, ..ResponseWait::default() };
        let mut limits = StatedLimits::default();
        for ((row, suffix), name, value) in &known {
            let suffix = name.as_ref().get(suffix.clone()).unwrap_or_default();
            let read = text(value).and_then(|value| match row.says {
                Says::Date => Some(()),
                Says::Retry(form) => response.says_wait(form(&waits, value)),
                Says::Scope => response.says_scope(value),
                Says::Refusal(statuses, word) => response.says_refusal(statuses, word, value),
                _ => limits.say(row, suffix, value, &waits),
            });
            ignored += u32::from(read.is_none());
        }
        if self.status.is_some_and(Self::reads_body) && body.len() <= MAX_BODY {
            ignored += body::read(body, &waits, &mut response);
        }
        let (observations, too_many) = limits.observations(self.status == Some(429));
        ignored += too_many;
        let observations = response.first_of(observations, self.max_wait);
        ObservedResponse { observations, ignored }
    }
}

/// The value of a field as text.
fn text(value: &impl AsRef<[u8]>) -> Option<&str> {
    let value = Some(value.as_ref()).filter(|value| value.len() <= MAX_VALUE)?;
    std::str::from_utf8(value).ok().map(str::trim)
}

/// The wait of the whole response.
#[derive(Default)]
struct ResponseWait {
    status: Option<u16>,
    wait: Option<Duration>,
    scope: ObservationScope,
    /// The wait after a refusal that names none and that is recognized by a sign.
    unsaid: Option<Duration>,
}

impl ResponseWait {
    /// The longest wait counts. In a response that was served it means something else, such as a redirect or a result.
    fn says_wait(&mut self, wait: Option<Duration>) -> Option<()> {
        let wait = wait?;
        if self.status.is_none_or(|status| status >= 400) {
            self.wait = Some(self.wait.map_or(wait, |known| known.max(wait)));
        }
        Some(())
    }

    fn says_scope(&mut self, value: &str) -> Option<()> {
        if value.eq_ignore_ascii_case("true") || value.starts_with("global") {
            self.scope = ObservationScope::All;
        }
        Some(())
    }

    fn says_refusal(&mut self, statuses: &[u16], word: &str, value: &str) -> Option<()> {
        if self.status.is_some_and(|status| statuses.contains(&status)) && value.contains(word) {
            self.refused(UNSAID_WAIT);
        }
        Some(())
    }

    fn refused(&mut self, wait: Duration) {
        self.unsaid = Some(self.unsaid.map_or(wait, |known| known.max(wait)));
    }

    /// The Observations, with the wait of the response in the first one: a limit with nothing left, or a new Observation.
    fn first_of(mut self, mut observations: Vec<Observation>, max_wait: Duration) -> Vec<Observation> {
        if self.status == Some(429) {
            self.unsaid = self.unsaid.or(Some(UNSAID_WAIT));
        }
        let is_empty = |limit: &Observation| limit.remaining == Some(0);
        let waits = |limit: &Observation| is_empty(limit) && limit.reset_after.is_some_and(|reset| !reset.is_zero());
        let unsaid = self.unsaid.filter(|_| !observations.iter().any(waits)).map(|wait| wait.min(max_wait));
        let Some(wait) = self.wait.or(unsaid) else { return observations };
        let empty = observations.iter().position(is_empty);
        let mut first = match empty {
            Some(index) if self.scope == ObservationScope::Key => observations.remove(index),
            _ => Observation { scope: self.scope, ..Observation::default() },
        };
        first.retry_after = Some(wait);
        observations.insert(0, first);
        observations
    }
}
