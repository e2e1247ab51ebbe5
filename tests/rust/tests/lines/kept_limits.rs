//! The limits of random lives, kept by brute force.

use tidegate::{CheckOptions, Units};

/// How long a limit counts an admitted call, by brute force.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kept {
    /// In the window that the first charge opened.
    Window(u64),
    /// For so long after its charge.
    Log(u64),
    /// Until it is given back.
    Held,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LimitOf {
    pub(super) notation: &'static str,
    pub(super) kept: Kept,
    pub(super) count: u64,
    pub(super) counts_tokens: bool,
}

impl LimitOf {
    /// The units that the calls admitted until a moment use of it then.
    fn used(&self, admitted: &[Admitted], at: u64) -> u64 {
        match self.kept {
            Kept::Held => admitted.iter().filter(|one| one.is_held).map(|one| one.wanted.of(self)).sum(),
            Kept::Log(period) => {
                admitted.iter().filter(|one| one.at + period > at).map(|one| one.wanted.of(self)).sum()
            }
            Kept::Window(period) => {
                let (mut opened, mut used) = (0, 0);
                for one in admitted {
                    if one.at >= opened + period {
                        (opened, used) = (one.at, 0);
                    }
                    used += one.wanted.of(self);
                }
                if at >= opened + period { 0 } else { used }
            }
        }
    }

    /// True if it admits a call at a moment. The part that a class leaves free is a whole number.
    pub(super) fn admits(&self, admitted: &[Admitted], wanted: &Wanted, at: u64) -> bool {
        self.used(admitted, at) + wanted.of(self) + self.count * CLASSES[wanted.class].1 / 4 <= self.count
    }
}

pub(super) const SECOND: u64 = 1_000_000;
const WINDOW: LimitOf =
    LimitOf { notation: "fixed-window 8/10s", kept: Kept::Window(10 * SECOND), count: 8, counts_tokens: false };
const LOG: LimitOf =
    LimitOf { notation: "sliding-log 12/7s", kept: Kept::Log(7 * SECOND), count: 12, counts_tokens: false };
const TOKENS: LimitOf =
    LimitOf { notation: "fixed-window 40 tokens/9s", kept: Kept::Window(9 * SECOND), count: 40, counts_tokens: true };
const HELD: LimitOf = LimitOf { notation: "concurrency 4 ttl 30s", kept: Kept::Held, count: 4, counts_tokens: false };

pub(super) const POLICIES: [&[LimitOf]; 7] =
    [&[WINDOW], &[LOG], &[LOG, WINDOW], &[WINDOW, TOKENS], &[HELD], &[HELD, WINDOW], &[LOG, TOKENS, HELD]];

/// The classes, and how many quarters of each limit they leave free.
pub(super) const CLASSES: [(Option<&str>, u64); 3] = [(None, 0), (Some("batch"), 1), (Some("background"), 2)];

/// The units and the class of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) cost: u64,
    pub(super) tokens: u64,
    pub(super) class: usize,
}

impl Wanted {
    pub(super) fn of(&self, limit: &LimitOf) -> u64 {
        if limit.counts_tokens { self.tokens } else { self.cost }
    }

    pub(super) fn options(&self, counts_tokens: bool) -> CheckOptions {
        let units = if counts_tokens { Units::from([("tokens", self.tokens)]) } else { Units::default() };
        let priority = CLASSES[self.class].0.map(str::to_owned);
        CheckOptions { cost: self.cost, units, priority, ..CheckOptions::default() }
    }
}

/// A call that was admitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    pub(super) at: u64,
    pub(super) wanted: Wanted,
    /// True if its units are still held.
    pub(super) is_held: bool,
}
