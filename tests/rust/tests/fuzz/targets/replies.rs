//! The bytes of a connection to a server: `how they are cut \n bytes`. Cuts do not change the replies, memory is
//! bounded by the bytes that have arrived, and an independent reader agrees.

use redis::Value;
use tidegate::bench::BenchReplies;
use tidegate_tests::random::Random;

use crate::fuzz::outcome::shape;

pub(crate) const WORDS: &[&str] = &[
    "\r\n",
    "+OK\r\n",
    "-ERR no\r\n",
    "-MOVED 1 h:1\r\n",
    ":1\r\n",
    "$3\r\nabc\r\n",
    "$0\r\n\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*1\r\n",
    "*2\r\n",
    "%1\r\n",
    "~1\r\n",
    ">1\r\n",
    "|1\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "(3492890328409\r\n",
    "!5\r\nERR x\r\n",
    "=7\r\ntxt:abc\r\n",
    "$536870912\r\n",
    "*536870912\r\n",
    "*999999999999999999\r\n",
    "\r",
    "\n",
    "*",
    "$",
    "-",
    "\u{fffd}",
];

/// The most bytes of a reply here.
const MOST: usize = 1_500;
/// The bytes that a value in memory may take for each byte of its reply.
const WEIGHT: usize = 64;
/// The first size of a buffer, in bytes.
const FIRST: usize = 8 * 1_024;

/// The replies, and the reason why the bytes after them are none.
fn received<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Value>, Option<&'static str>) {
    let (mut replies, mut values, mut arrived) = (BenchReplies::default(), Vec::new(), 0);
    for chunk in chunks {
        replies.receive(chunk);
        arrived += chunk.len();
        assert!(replies.allocated() <= FIRST + 4 * arrived, "{} bytes for {arrived}", replies.allocated());
        loop {
            match replies.next(MOST) {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(why) => return (values, Some(why)),
            }
        }
    }
    (values, None)
}

/// The bytes that a value has allocated.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::BulkString(bytes) => bytes.capacity(),
        Value::SimpleString(text) => text.capacity(),
        Value::Array(items) => {
            let unused = items.capacity() - items.len();
            items.iter().map(weight).sum::<usize>() + unused * size_of::<Value>()
        }
        Value::Map(pairs) => {
            let unused = pairs.capacity() - pairs.len();
            pairs.iter().map(|(name, value)| weight(name) + weight(value)).sum::<usize>()
                + unused * size_of::<(Value, Value)>()
        }
        _ => 0,
    };
    inside + size_of::<Value>()
}

fn kind(value: &Value) -> char {
    match value {
        Value::Array(items) => items.first().map_or('0', kind).to_ascii_uppercase(),
        Value::BulkString(_) => 'b',
        Value::Int(_) => 'i',
        Value::Nil => 'n',
        Value::ServerError(_) => 'e',
        Value::Map(_) => 'm',
        Value::Boolean(_) => 't',
        _ => 's',
    }
}

pub(crate) fn run(input: &[u8]) -> String {
    let cut = input.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (how, bytes) = input.split_at(cut);
    let whole = received(std::iter::once(bytes));
    let single = received(bytes.chunks(1));
    let mut random = Random::new(how.iter().fold(7, |sum, byte| (sum * 31 + u64::from(*byte)) & 0xffff_ffff));
    let mut rest = bytes;
    let pieces = std::iter::from_fn(|| {
        let length = (random.below(9) as usize + 1).min(rest.len());
        let (piece, later) = rest.split_at(length);
        rest = later;
        (!piece.is_empty()).then_some(piece)
    });
    let pieces = received(pieces);
    for cut in [&single, &pieces] {
        // In pieces it is seen earlier that the bytes become too long, so the reasons may differ.
        let (values, why) = cut;
        assert_eq!(values, &whole.0, "the same replies in whatever pieces they come");
        assert_eq!(why.is_some(), whole.1.is_some(), "{why:?} in pieces, {:?} at once", whole.1);
    }
    let (values, why) = whole;
    let total: usize = values.iter().map(weight).sum();
    assert!(total <= WEIGHT * bytes.len(), "{total} bytes of values from {} bytes", bytes.len());
    agrees(bytes, &values);
    let kinds: String = values.iter().map(kind).take(3).collect();
    format!("{kinds} {}", why.map(shape).unwrap_or_default())
}

/// The client library reads the first reply as the same value, of the kinds that both know.
fn agrees(bytes: &[u8], values: &[Value]) {
    let Some(
        first @ (Value::Int(_) | Value::BulkString(_) | Value::SimpleString(_) | Value::Okay | Value::ServerError(_)),
    ) = values.first()
    else {
        return;
    };
    // An error is shown without blanks at its end and without invisible characters.
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let is_shown_as_it_is = line.iter().all(|byte| (b' '..=b'~').contains(byte)) && !line.ends_with(b" ");
    if matches!(bytes.first(), Some(b'+' | b':' | b'$')) || bytes.first() == Some(&b'-') && is_shown_as_it_is {
        // It takes one reply, with nothing after it.
        let ends = (1..=bytes.len()).find_map(|end| redis::parse_redis_value(&bytes[..end]).ok());
        // It refuses texts that are not UTF-8, which are shown with a replacement here.
        assert!(ends.is_none() || ends.as_ref() == Some(first), "{first:?}, but the client library reads {ends:?}");
    }
}
