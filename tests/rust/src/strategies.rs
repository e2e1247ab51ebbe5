//! `proptest` strategies for policies and for calls on them.

use proptest::prelude::*;
use proptest::sample::select;
use tidegate::{Algorithm, BlockFor, Limit, Options, Period, Policy, TimeUnit};

/// A call, or a change of the policy. Times are microseconds.
#[derive(Clone, Debug)]
pub enum Action {
    /// Checks and charges.
    Check(u64),
    /// Charges the units that are left, up to the cost.
    Take(u64),
    /// Checks without charging.
    Peek(u64),
    /// Charges.
    Charge(u64),
    /// Refunds.
    Refund(u64),
    /// Settles the last check.
    Settle(u64),
    /// Blocks the key for that long.
    Block(u64),
    /// Ends a block.
    Unblock,
    /// Removes the usage.
    Clear,
    /// Takes a hold.
    Hold(u64),
    /// Releases the oldest hold.
    Release,
    /// Checks two keys at once.
    CheckAll(u64, u64),
    /// Reads the journal.
    Journal,
    /// Changes the counts of the limits to these, in turn.
    Change(Vec<u64>),
}

fn period() -> impl Strategy<Value = Period> {
    prop_oneof![
        2 => Just(Period::from_micros(1_000)),
        4 => (1_000u64..20_000).prop_map(Period::from_micros),
        2 => (1u64..90).prop_map(|n| Period::new(n, TimeUnit::Second)),
        1 => Just(Period::new(1, TimeUnit::Day)),
        1 => (1u64..3).prop_map(|n| Period::new(n, TimeUnit::Week)),
        1 => (1u64..14).prop_map(|n| Period::new(n, TimeUnit::Month)),
        1 => Just(Period::new(1, TimeUnit::Year)),
    ]
    .prop_map(|period| period.expect("in range"))
}

/// A limit of one of these algorithms.
pub fn limit(algorithms: &'static [Algorithm]) -> impl Strategy<Value = Limit> {
    let count = prop_oneof![
        8 => 1u64..12,
        2 => 1u64..1_000,
        1 => Just(0u64),
        1 => 999_999_000_000u64..=1_000_000_000_000,
    ];
    (select(algorithms), count, period(), any::<bool>(), 1u64..30, 0u64..30, 1u32..45).prop_map(
        |(algorithm, count, period, extra, burst, initial, precision)| {
            let limit = Limit::new(algorithm, count, period).expect("in range");
            if !extra {
                return limit;
            }
            if algorithm == Algorithm::SlidingWindow {
                return limit.with_precision(precision).expect("in range");
            }
            let limit = if algorithm.has_burst() { limit.clone().with_burst(burst).unwrap_or(limit) } else { limit };
            if algorithm == Algorithm::TokenBucket {
                let initial = initial.min(limit.capacity());
                return limit.with_initial(initial).expect("within");
            }
            limit
        },
    )
}

/// A `calendar-window` of one day, week, month or year with a zone and perhaps an anchor.
pub fn own_calendar() -> impl Strategy<Value = Limit> {
    let days = (1u32..32).prop_map(|day| format!("day {day}"));
    let anchored = prop_oneof![
        select(&["day", "week", "month", "year"][..]).prop_map(|unit| (unit, String::new())),
        days.clone().prop_map(|day| ("month", day)),
        days.prop_map(|day| ("year", day)),
        select(&["monday", "wednesday", "sunday"][..]).prop_map(|day| ("week", day.to_owned())),
    ];
    let time = prop_oneof![
        Just(String::new()),
        (0u32..24, 0u32..60).prop_map(|(hour, minute)| format!("at {hour:02}:{minute:02}"))
    ];
    (1u64..12, anchored, time, select(ZONES)).prop_map(|(count, (unit, day), time, zone)| {
        let anchor = [day, time].join(" ");
        let from = if anchor.trim().is_empty() { String::new() } else { format!(" from {}", anchor.trim()) };
        let policy = Policy::parse(&format!("calendar-window {count}/{unit}{from} in {zone}")).expect("a policy");
        policy.limits()[0].clone()
    })
}

/// Zones of many kinds: clocks that change in summer and in winter, by an hour and by half of one, at midnight, and never.
pub const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "Pacific/Apia",
    "America/Santiago",
    "Etc/GMT+12",
];

/// No options.
pub fn plain() -> BoxedStrategy<Options> {
    Just(Options::default()).boxed()
}

/// Any options.
pub fn any_options() -> BoxedStrategy<Options> {
    let lengths = proptest::collection::vec(1_000u64..30_000, 1..4);
    let block_for = prop_oneof![4 => Just(None), 2 => (lengths, prop_oneof![Just(None), (1_000u64..60_000).prop_map(Some)]).prop_map(Some)];
    let micros = |micros: u64| Period::from_micros(micros).expect("in range");
    let rarely = || prop_oneof![5 => Just(false), 1 => Just(true)];
    (rarely(), rarely(), block_for, prop_oneof![4 => Just(0u32), 1 => 1u32..5])
        .prop_map(move |(shadow, count_denied, block_for, journal)| Options {
            shadow,
            count_denied,
            block_for: block_for
                .as_ref()
                .map(|(lengths, _)| BlockFor::new(lengths.iter().copied().map(micros)).expect("lengths")),
            forgive: block_for.and_then(|(_, forgive)| forgive).map(micros),
            journal,
            ..Options::default()
        })
        .boxed()
}

/// A policy named `p` of one to `most` limits of these algorithms.
pub fn policy(
    algorithms: &'static [Algorithm],
    most: usize,
    options: BoxedStrategy<Options>,
) -> impl Strategy<Value = Policy> {
    (proptest::collection::vec(limit(algorithms), 1..=most), options)
        .prop_map(|(limits, options)| Policy::new(limits, options).expect("in range").named("p").expect("short"))
}

/// The cost of a check.
pub fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![12 => Just(1u64), 6 => 1u64..6, 2 => 1u64..40, 1 => 1u64..1_000_000_000_000]
}

/// The time that passes before an action.
pub fn pause() -> BoxedStrategy<u64> {
    prop_oneof![
        3 => Just(0u64),
        1 => Just(1u64),
        4 => 0u64..3_000,
        3 => 0u64..30_000,
        2 => 0u64..60_000_000,
        1 => 0u64..100 * 86_400 * 1_000_000,
    ]
    .boxed()
}

/// All algorithms except `concurrency`, because only `hold` can take its units.
pub const RATES: &[Algorithm] = &[
    Algorithm::FixedWindow,
    Algorithm::CalendarWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::LeakyBucket,
];

/// True if a policy has units that only `hold` can take.
#[must_use]
pub fn is_held(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency)
}

impl Action {
    /// True if such a policy accepts it. The limiter refuses other calls.
    #[must_use]
    pub fn fits(&self, policy: &Policy) -> bool {
        match self {
            Self::Check(_) | Self::Take(_) | Self::CheckAll(..) => !is_held(policy),
            Self::Hold(_) => is_held(policy),
            _ => true,
        }
    }
}

/// True if a limit of this algorithm can grant part of a cost.
#[must_use]
pub fn takes_part(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Concurrency | Algorithm::LeakyBucket)
}

/// All actions.
pub fn any_action() -> BoxedStrategy<Action> {
    prop_oneof![
        12 => cost().prop_map(Action::Check),
        4 => cost().prop_map(Action::Take),
        2 => cost().prop_map(Action::Peek),
        1 => cost().prop_map(Action::Charge),
        2 => cost().prop_map(Action::Refund),
        1 => (0u64..8).prop_map(Action::Settle),
        1 => (1u64..20_000).prop_map(Action::Block),
        1 => Just(Action::Unblock),
        1 => Just(Action::Clear),
        2 => cost().prop_map(Action::Hold),
        1 => Just(Action::Release),
        2 => (cost(), cost()).prop_map(|(one, two)| Action::CheckAll(one, two)),
        1 => Just(Action::Journal),
        1 => proptest::collection::vec(0u64..30, 1..4).prop_map(Action::Change),
    ]
    .boxed()
}

/// Actions that only charge: for clocks that jump.
pub fn consuming_action() -> BoxedStrategy<Action> {
    prop_oneof![
        12 => cost().prop_map(Action::Check),
        3 => cost().prop_map(Action::Take),
        3 => cost().prop_map(Action::Peek),
        2 => cost().prop_map(Action::Charge),
        2 => (cost(), cost()).prop_map(|(one, two)| Action::CheckAll(one, two)),
    ]
    .boxed()
}

/// The policy with other counts. Buckets keep their burst where that is possible, and else have none.
#[must_use]
pub fn changed(policy: &Policy, counts: &[u64]) -> Policy {
    let limits = policy.limits().iter().enumerate().map(|(index, old)| {
        let limit = Limit::new(old.algorithm(), counts[index % counts.len()], old.period()).expect("in range");
        if old.algorithm() == Algorithm::SlidingWindow {
            return limit.with_precision(old.precision()).expect("in range");
        }
        old.burst().and_then(|burst| limit.clone().with_burst(burst).ok()).unwrap_or(limit)
    });
    Policy::new(limits.collect(), policy.options().clone()).expect("in range").named(policy.name()).expect("short")
}
