//! What calls of each model used: the newest of them, of which all but a few were below what is estimated.

use std::collections::HashMap;

/// The newest calls of a model that count.
const SAMPLES: usize = 128;
/// Of so many new calls at most `ABOVE` use more than what is estimated, on average.
const OF: usize = 128;
/// The calls that may use more than what is estimated: 4 %.
const ABOVE: usize = 5;
/// So many calls say enough: before, what they say only raises what is estimated without them.
const ENOUGH: usize = OF / ABOVE;
/// The most lists of calls.
const MAX_LISTS: usize = 256;
/// The longest name of a model that is kept, in bytes.
const MAX_MODEL: usize = 128;

/// What is learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Learned {
    /// Tokens of a number of bytes.
    Input,
    /// Tokens of an answer whose bound has so many binary digits. Calls of one model with different bounds ask for different things.
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
    /// What is estimated: more than all but a few of the newest calls used. `start` is the estimate without them.
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

    /// Adds what a call used.
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
