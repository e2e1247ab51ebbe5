//! The stored form of the learned limits of a key.

use smallvec::SmallVec;

use super::window::{LearnedWindow, MAX_STEPS, UsedUntil};
use super::{LearnedLimits, MAX_LEARNED_WINDOWS};
use crate::algorithm::{MAX_SAFE_INTEGER, MOMENT_WIDTH, number, period, put};

/// Bits of the byte that describes a window. The lower bits are the place of its limit.
const STATED: u8 = 16;
const ASSUMED: u8 = 32;
const BESIDE: u8 = 64;
const COUNTED: u8 = 128;

impl LearnedLimits {
    /// Appends the content of a section.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let moments = |out: &mut Vec<u8>, moments: &[u64]| {
            moments.iter().for_each(|moment| put(out, *moment, MOMENT_WIDTH));
        };
        moments(out, &[self.calls, self.calls_until, self.wait_until]);
        for window in &self.windows {
            let LearnedWindow { id, place, limit, length, asks_until, until, .. } = *window;
            moments(out, &[id]);
            let marks = [
                (window.is_stated, STATED),
                (window.is_assumed, ASSUMED),
                (window.is_beside, BESIDE),
                (window.is_counted, COUNTED),
            ];
            out.push(marks.iter().filter(|(is, _)| *is).fold(place, |marks, (_, mark)| marks | mark));
            moments(out, &[limit, length, asks_until, until]);
            out.push(window.steps.len() as u8);
            window.steps.iter().for_each(|step| moments(out, &[step.used, step.closes]));
        }
    }

    /// Reads the content of a section. `None` for invalid bytes.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let moment = |bytes: &mut &[u8]| number(bytes, MOMENT_WIDTH).filter(|number| *number <= MAX_SAFE_INTEGER);
        let (calls, calls_until, wait_until) = (moment(bytes)?, moment(bytes)?, moment(bytes)?);
        let mut windows = Vec::new();
        while !bytes.is_empty() && windows.len() < MAX_LEARNED_WINDOWS {
            let (id, marks) = (moment(bytes)?, number(bytes, 1)? as u8);
            let (limit, length) =
                (moment(bytes)?, Some(moment(bytes)?).filter(|length| (1..=period::LONGEST).contains(length))?);
            let (asks_until, until) = (moment(bytes)?, moment(bytes)?);
            let mut steps = SmallVec::new();
            for _ in 0..number(bytes, 1)?.min(MAX_STEPS as u64) {
                steps.push(UsedUntil { used: moment(bytes)?, closes: moment(bytes)? });
            }
            windows.push(LearnedWindow {
                id,
                place: marks & (STATED - 1),
                is_stated: marks & STATED > 0,
                is_assumed: marks & ASSUMED > 0,
                is_beside: marks & BESIDE > 0,
                is_counted: marks & COUNTED > 0,
                limit,
                length,
                asks_until,
                until,
                steps,
            });
        }
        bytes.is_empty().then_some(Self { calls, calls_until, wait_until, windows })
    }
}
