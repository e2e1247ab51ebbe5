//! The tokens that the newest calls of each model used. An estimate covers all but a few of them.

use std::collections::HashMap;

/// The newest calls of a model that count.
const SAMPLES: usize = 128;
/// On average, at most `ABOVE` of so many new calls use more than their estimate.
const OF: usize = 128;
/// The calls that may use more than their estimate: 4 %.
const ABOVE: usize = 5;
/// So many calls are enough. Fewer calls can only raise the estimate that is made without them.
const ENOUGH: usize = OF / ABOVE;
/// The most lists of calls.
const MAX_LISTS: usize = 256;
/// The longest name of a model that is kept, in bytes.
const MAX_MODEL: usize = 128;

/// The numbers that are learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Learned {
    /// The tokens per byte of the input.
    Input,
    /// The tokens of an answer with a bound of so many binary digits. Calls with different bounds have different purposes.
    Output(u32),
}

/// Lists of calls by model. The list that was used least recently makes room for another one.
#[derive(Debug, Clone, Default)]
pub(super) struct LearnedTable {
    lists: HashMap<(Box<str>, Learned), SampleList>,
    uses: u64,
}

#[derive(Debug, Clone, Default)]
struct SampleList {
    newest: Vec<u64>,
    next: usize,
    used: u64,
}

impl LearnedTable {
    /// The estimate, which covers all but a few of the newest calls. `start` is the estimate without them.
    pub(super) fn estimate(&mut self, model: &str, what: Learned, start: u64) -> u64 {
        self.uses += 1;
        let Some(list) = self.lists.get_mut(&(model.into(), what)) else { return start };
        list.used = self.uses;
        let count = list.newest.len();
        // A new call is above the n-th largest of m others in n of m + 1 cases, whatever the calls are like.
        let rank = ((count + 1) * ABOVE / OF).max(1);
        let mut sorted = list.newest.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        match sorted.get(rank - 1) {
            Some(used) if count >= ENOUGH => *used,
            used => start.max(used.copied().unwrap_or(0)),
        }
    }

    /// Adds the tokens that a call used.
    pub(super) fn add(&mut self, model: &str, what: Learned, used: u64) {
        if model.len() > MAX_MODEL {
            return;
        }
        self.uses += 1;
        let key = (Box::from(model), what);
        if self.lists.len() >= MAX_LISTS && !self.lists.contains_key(&key) {
            let oldest = self.lists.iter().min_by_key(|(_, list)| list.used).map(|(key, _)| key.clone());
            oldest.map(|key| self.lists.remove(&key));
        }
        let list = self.lists.entry(key).or_default();
        list.used = self.uses;
        if list.newest.len() < SAMPLES {
            list.newest.push(used);
        } else {
            list.newest[list.next] = used;
            list.next = (list.next + 1) % SAMPLES;
        }
    }
}
