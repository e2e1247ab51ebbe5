//! Wrong scripts. The checker finds each of them.

use std::time::Duration;

use tidegate_tests::call_records::Loss;
use tidegate_tests::mutating_proxy::{MutatingProxy, Mutation};
use tidegate_tests::servers::{Kind, Servers};

use super::run::{clients, record, schedule};

/// The meaning of each fault, and the change of the script that makes it.
const FAULTS: [(&str, Mutation); 9] = [
    ("a denial charges", &[("if admitted then", "if true then")]),
    (
        "a check is charged twice",
        &[(
            "local INSTRUCTION = 19\n",
            "local INSTRUCTION = 19\nif grouping >= 4 and call_number % 20 == 0 then cost = 2 * cost end\n",
        )],
    ),
    (
        "a denied check_all charges",
        &[(
            "if changed_value then key.changed, key.instruction = require_possible(changed_value, instruction), instruction end\n",
            "if changed_value then store(KEYS[(index - 1) * stride + 1], write(changed_value, instruction), ends_of(changed_value, instruction)) end\nif changed_value then key.changed, key.instruction = require_possible(changed_value, instruction), instruction end\n",
        )],
    ),
    (
        "a window ends early",
        &[
            ("if now >= value[first] + self.period then", "if now >= value[first] + self.period - 20000 then"),
            ("if now >= opened + period then", "if now >= opened + period - 20000 then"),
        ],
    ),
    ("a value expires early", &[("string.format('%d', quarters * 250)", "string.format('%d', quarters * 50)")]),
    (
        "retry_after is 10 ms early",
        &[(">= units end) or 0) + self.period", ">= units end) or 0) + self.period - 10000")],
    ),
    (
        "a refund is lost",
        &[(
            "return limit:refund(value, limit.units or instruction.cost)\n",
            "return limit.units or instruction.cost\n",
        )],
    ),
    (
        "a bucket fills too fast",
        &[
            (
                "local gone = floor((now - value[first]) / self.period)",
                "local gone = floor((now - value[first]) * 1.2 / self.period)",
            ),
            ("local gone = floor((now - since) / period)", "local gone = floor((now - since) * 1.2 / period)"),
        ],
    ),
    (
        "a block is forgotten",
        &[("value.blocked_until, value.block_level = now + instruction.block, level", "value.blocked_until = 0")],
    ),
];

/// An idle machine finds most scripts in the first run. A busy one makes fewer calls, so each run is longer than the last.
const RUNS: u32 = 6;

#[test]
fn wrong_scripts_are_found() {
    let mut missed = Vec::new();
    for (number, (name, mutation)) in FAULTS.into_iter().enumerate() {
        let servers = Servers::start(Kind::Single);
        let proxy = MutatingProxy::to(servers.port(0), mutation);
        let url = format!("redis://127.0.0.1:{}/0", proxy.port());
        let clients = clients(&url, &schedule("seeded"), number as u64, 8);
        let found = (1..=RUNS).any(|run| {
            let recorded = record(&clients, &[], Duration::from_millis(400) * run, 0, |_, _| ());
            let report = recorded.check(0);
            println!("{name}: {}", report.summary());
            !report.violations.is_empty()
        });
        assert!(proxy.mutated() > 0, "{name}: the script has no such text");
        if !found {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_loss_that_nothing_explains_is_found() {
    let servers = Servers::start(Kind::Single);
    let clients = clients(servers.url(), &schedule("lost"), 0, 8);
    let recorded = record(&clients, &[], Duration::from_millis(2_000), 0, |log, _| {
        // Recorded as a fault that loses nothing.
        log.cause("emptied", Loss::Nothing, || drop(servers.command(0, &["FLUSHALL"])));
    });
    assert!(!recorded.check(0).violations.is_empty());
}

#[test]
fn a_right_script_is_explained() {
    let servers = Servers::start(Kind::Single);
    let clients = clients(servers.url(), &schedule("right"), 0, 8);
    let recorded = record(&clients, &[], Duration::from_millis(2_000), 0, |_, _| ());
    super::run::assert_explained(&recorded.check(0));
}
