//! Checks that a connection is in step: that the next reply answers the next command.
//!
//! An answer of the script carries the number of its call. An error does not: one that a proxy repeats looks new. So an
//! error that would send a call again is believed only once a PING with a number came back with that number.

use redis::Value;

/// The most bytes of a reply to a command that is no script call.
pub(crate) const MAX_SHORT_REPLY: usize = 64 * 1_024;

/// Writes a PING with this number.
pub(crate) fn write_question(number: u32, out: &mut Vec<u8>) {
    redis::cmd("PING").arg(&number.to_le_bytes()).write_packed_command(out);
}

/// True if a reply answers the PING. A server that refuses PING, for example because it loads its data, answers with an
/// error.
pub(crate) fn is_in_step(reply: &Value, number: u32) -> bool {
    match reply {
        Value::BulkString(text) => *text == number.to_le_bytes(),
        Value::ServerError(_) => true,
        _ => false,
    }
}

/// True if a reply can answer ASKING.
pub(crate) const fn is_status(reply: &Value) -> bool {
    matches!(reply, Value::Okay | Value::ServerError(_))
}
