//! Finds out whether a connection is in step: whether the next reply answers the next command.
//!
//! An answer of the script names its call. An error names nothing: one that a proxy repeated looks like the server's own. So
//! an error that would send a call again is believed only once a PING with a number came back with that number.

use redis::Value;

/// The most bytes of a reply to a command that is no script call.
pub(crate) const MAX_SHORT_REPLY: usize = 64 * 1_024;

/// Writes the question.
pub(crate) fn write_question(number: u32, out: &mut Vec<u8>) {
    redis::cmd("PING").arg(&number.to_le_bytes()).write_packed_command(out);
}

/// Whether a reply is the answer to the question. A server that refuses PING, because it loads its data for example, answers
/// with an error.
pub(crate) fn is_in_step(reply: &Value, number: u32) -> bool {
    match reply {
        Value::BulkString(text) => *text == number.to_le_bytes(),
        Value::ServerError(_) => true,
        _ => false,
    }
}

/// Whether a reply can be the answer to ASKING.
pub(crate) const fn is_status(reply: &Value) -> bool {
    matches!(reply, Value::Okay | Value::ServerError(_))
}
