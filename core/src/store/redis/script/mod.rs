//! Turns requests into one script call, and its reply into answers. It does no I/O.
//!
//! `request.rs` is one entry under its Redis key, `arrangement.rs` puts requests in the order of the script, `batch.rs` encodes them as
//! one call with `instruction.rs`, `reply.rs` decodes the reply with `stored_value.rs`. `lua/` is the script itself: the rules of
//! `algorithm/` again, file by file.

mod annex;
mod arrangement;
mod batch;
mod command;
#[cfg(feature = "bench")]
pub(crate) mod compiler;
mod instruction;
mod reply;
mod request;
mod stored_value;

use std::borrow::Cow;

use once_cell::race::OnceBox;

pub(crate) use annex::{limits_of as limits_of_value, override_of as override_of_value};
pub(crate) use arrangement::Grouping;
pub(crate) use batch::{Batch, Requests};
pub(crate) use reply::{answer_of_value, rejected};
pub(crate) use request::Request;

/// A text of the script and its digest. A server that has the script runs it by its digest.
struct Program {
    source: Cow<'static, str>,
    digest: Cow<'static, str>,
}

/// The output of `compiler.rs` for `lua/`, which `make generate` writes. Compiling would slow the first call of a process.
static SCRIPT: Program = Program {
    source: Cow::Borrowed(include_str!("golden/script.lua.txt")),
    digest: Cow::Borrowed(include_str!("golden/script.sha1.txt")),
};

/// True if a word of a call is the script for calls over several slots, or its digest.
#[cfg(test)]
pub(crate) fn is_for_several_slots(word: &[u8]) -> bool {
    [&script_over_slots().source, &script_over_slots().digest].iter().any(|text| text.as_bytes() == word)
}

/// The script for calls over several slots of a cluster, made on its first use. Two threads may make it at once: with a
/// lock, the child of a process that forks meanwhile would wait for ever. Servers before Redis 7 do not compile it.
fn script_over_slots() -> &'static Program {
    static OVER_SLOTS: OnceBox<Program> = OnceBox::new();
    OVER_SLOTS.get_or_init(|| {
        let source = [include_str!("lua/over_slots.lua"), &SCRIPT.source].concat();
        Box::new(Program { digest: redis::Script::new(&source).get_hash().to_owned().into(), source: source.into() })
    })
}
