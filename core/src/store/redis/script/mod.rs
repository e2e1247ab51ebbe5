//! The script: requests in, one script call out; its reply in, answers out. Pure, no I/O.
//!
//! `request.rs` is one entry under its Redis key, `batch.rs` encodes requests as one call with `instruction.rs`, `reply.rs`
//! decodes the reply with `stored_value.rs`. `lua/` is the script itself: the rules of `algorithm/` again, file by file.

mod annex;
mod batch;
mod command;
mod inlined_rules;
mod instruction;
mod named_numbers;
mod reply;
mod request;
mod stored_value;

use once_cell::race::OnceBox;

pub(crate) use annex::limits_of as limits_of_value;
pub(crate) use batch::{Batch, Grouping, Requests};
pub(crate) use reply::{answer_of_value, rejected};
pub(crate) use request::{KEY_DIGEST, Request};

/// The text of the script. Rules are the body of one function, whose files all have the same shape.
fn source() -> String {
    named_numbers::numbered(&[HEAD, &inlined_rules::one_limit(), &inlined_rules::several_limits(), REST].concat())
}

const HEAD: &str = include_str!("lua/head.lua");

const REST: &str = concat!(
    include_str!("lua/rules.lua"),
    "local function rule_of(algorithm, whole, initial, check_only)\n",
    include_str!("lua/meter.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/calendar_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/gcra.lua"),
    include_str!("lua/leaky_bucket.lua"),
    include_str!("lua/concurrency.lua"),
    "end\n",
    include_str!("lua/value.lua"),
    include_str!("lua/fast_path.lua"),
    include_str!("lua/reply.lua"),
    include_str!("lua/instruction.lua"),
    include_str!("lua/stored_form.lua"),
    include_str!("lua/undo.lua"),
    include_str!("lua/operation.lua"),
    include_str!("lua/slow_path.lua"),
    include_str!("lua/main.lua"),
);

/// A text of the script, and its digest, by which a server that has it runs it.
struct Program {
    source: String,
    digest: String,
}

impl Program {
    fn new(source: String) -> Self {
        Self { digest: redis::Script::new(&source).get_hash().to_owned(), source }
    }
}

/// Whether a word of a call is the script for calls over several slots, or its digest.
#[cfg(test)]
pub(crate) fn is_for_several_slots(word: &[u8]) -> bool {
    [&script_over_slots().source, &script_over_slots().digest].iter().any(|text| text.as_bytes() == word)
}

/// The script, made on its first use. A process may be forked meanwhile, and its child would wait for a lock for ever, so that two
/// threads may make it.
fn script() -> &'static Program {
    static PROGRAM: OnceBox<Program> = OnceBox::new();
    PROGRAM.get_or_init(|| Box::new(Program::new(source())))
}

/// The script for calls over several slots of a cluster. Servers before Redis 7 do not compile it.
fn script_over_slots() -> &'static Program {
    static OVER_SLOTS: OnceBox<Program> = OnceBox::new();
    let text = || [include_str!("lua/over_slots.lua"), &source()].concat();
    OVER_SLOTS.get_or_init(|| Box::new(Program::new(text())))
}
