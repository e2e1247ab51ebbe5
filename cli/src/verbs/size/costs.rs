//! The costs of a check and of a key, and the source of the figures.

use tidegate::Policy;

use crate::redis_cost::RedisCost;

/// Server CPU for the script of a check of one limit, in microseconds, as this project measured it (docs/adr/0004,
/// docs/adr/0023): alone, and in batches of 64.
const ALONE: f64 = 4.6;
const FOLDED: f64 = 1.7;
/// The cost of a call beside its script: a read and a write of its socket. It is the least of five measurements of
/// `tidegate size` on Redis 7.0, without the script.
const SOCKET: f64 = 8.2;
/// The checks of a batch.
const BATCH: f64 = 64.0;
/// The cost that each further limit of a policy adds to a check that is alone.
const FURTHER_LIMIT: f64 = 2.8;
/// The bytes of a key that MEMORY USAGE leaves out: its places in the table of keys and in that of expiries.
const TABLES: f64 = 64.0;

/// The figures that a size is computed from.
pub(super) struct Costs {
    /// The source of the figures, in one sentence.
    pub(super) source: String,
    pub(super) is_measured: bool,
    /// Microseconds of a server's core for a check of all policies: alone, and in batches.
    pub(super) alone: f64,
    pub(super) folded: f64,
    /// Bytes of one key of each policy together: hardly used, and with all limits in use.
    pub(super) key_bytes: (f64, f64),
    /// Notes on costs that the figures leave out.
    pub(super) notes: Vec<String>,
}

impl Costs {
    pub(super) fn shipped(policies: &[Policy]) -> Self {
        let sum = |cost: fn(f64) -> f64| policies.iter().map(|policy| cost(policy.limits().len() as f64)).sum();
        Self {
            source: "figures that this project has measured (Redis 7, one machine); --store measures yours".to_owned(),
            is_measured: false,
            alone: sum(|limits| SOCKET + ALONE + FURTHER_LIMIT * (limits - 1.0)),
            folded: sum(|limits| SOCKET / BATCH + FOLDED * limits),
            key_bytes: stated_bytes(policies),
            notes: beside(policies),
        }
    }
}

/// The bytes of a key according to its format.
fn stated_bytes(policies: &[Policy]) -> (f64, f64) {
    let keys = policies.iter().map(|policy| RedisCost::of(policy).key);
    with_tables(keys.map(|(least, most)| (least as f64, most as f64)), policies.len())
}

/// The sum of the bytes of keys, with the bytes that each takes in the server's tables.
pub(super) fn with_tables(keys: impl Iterator<Item = (f64, f64)>, count: usize) -> (f64, f64) {
    let tables = TABLES * count as f64;
    keys.fold((tables, tables), |sum, key| (sum.0 + key.0, sum.1 + key.1))
}

/// The bytes of rows in a table of PostgreSQL with their entries in its index. Half of a page is free for updates.
pub(super) fn table_bytes(policies: &[Policy]) -> (f64, f64) {
    /// The head of a row, its key, its version, its moment of expiry, the head of its value, and its place in the page.
    const ROW: usize = 24 + 15 + 9 + 8 + 32 + 4;
    const INDEXED: usize = 32;
    let row = |value: usize| (2 * (ROW + value).next_multiple_of(8) + INDEXED) as f64;
    let rows = policies.iter().map(|policy| RedisCost::of(policy).value);
    rows.fold((0.0, 0.0), |sum, (least, most)| (sum.0 + row(least), sum.1 + row(most)))
}

/// Notes on data that grows in a separate key.
fn beside(policies: &[Policy]) -> Vec<String> {
    let of = |policy: &Policy| {
        let name = policy.name().to_owned();
        RedisCost::of(policy).beside.into_iter().map(move |what| format!("Not counted, for {name}: {what}."))
    };
    policies.iter().flat_map(of).collect()
}
