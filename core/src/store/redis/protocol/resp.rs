//! RESP replies: finds their ends in a stream of bytes, and decodes them.

use redis::Value;

use crate::error::visible;

/// The first size of a buffer.
const INITIAL_CAPACITY: usize = 8 * 1_024;
/// The largest capacity that an empty buffer keeps.
const KEPT_CAPACITY: usize = 1_024 * 1_024;
/// The longest string that Redis sends.
const MAX_STRING: i64 = 512 * 1_024 * 1_024;
/// The fewest bytes of an item of a list.
const MIN_ITEM: usize = 3;
/// The longest text of an error, in characters. Servers send shorter ones, and the text goes into logs.
const MAX_ERROR: usize = 1_000;
/// The script's replies nest twice, a list of cluster slots four times.
const MAX_DEPTH: usize = 16;

/// Bytes that were received and not decoded yet.
pub(crate) struct ReplyBuffer {
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    /// The end of the scanned part of the reply at `start`, and the number of items that it still lacks. So a reply
    /// that comes in many pieces is scanned once.
    scanned: usize,
    missing: usize,
}

/// The reason why bytes are no expected reply.
#[derive(Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

const NOT_RESP: Malformed = Malformed("it does not speak the protocol of Redis");
/// The first bytes of a TLS server that refuses unencrypted bytes.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];
const TLS: Malformed = Malformed(
    "it speaks TLS there: begin the store URL with rediss:// instead of redis://, or give the port without TLS",
);
const TOO_LONG: Malformed = Malformed("its reply is longer than any answer to the call");

impl ReplyBuffer {
    pub(crate) const fn new() -> Self {
        Self { buffer: Vec::new(), start: 0, filled: 0, scanned: 0, missing: 1 }
    }

    /// The space for the next bytes. `received` takes their number.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.filled {
            (self.start, self.scanned, self.filled) = (0, self.scanned - self.start, 0);
            if self.buffer.len() > KEPT_CAPACITY {
                self.buffer = Vec::new();
            }
        }
        if self.filled == self.buffer.len() {
            if self.start > self.buffer.len() / 2 {
                self.buffer.copy_within(self.start..self.filled, 0);
                (self.scanned, self.filled, self.start) = (self.scanned - self.start, self.filled - self.start, 0);
            } else {
                self.buffer.resize((self.buffer.len() * 2).max(INITIAL_CAPACITY), 0);
            }
        }
        &mut self.buffer[self.filled..]
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.filled
    }

    /// The bytes that it has allocated.
    #[cfg(feature = "bench")]
    pub(crate) fn allocated(&self) -> usize {
        self.buffer.capacity()
    }

    /// The next reply, if all of it is there. It has at most `max` bytes.
    pub(crate) fn next(&mut self, max: usize) -> Result<Option<Value>, Malformed> {
        loop {
            if !self.is_whole(max)? {
                return Ok(None);
            }
            let frame = &self.buffer[self.start..self.scanned];
            let pushed = frame.first() == Some(&b'>');
            let value = if pushed { Value::Nil } else { Decoder { frame, at: 0 }.value(0)? };
            (self.start, self.missing) = (self.scanned, 1);
            // A push message answers no command.
            if !pushed {
                return Ok(Some(value));
            }
        }
    }

    fn is_whole(&mut self, max: usize) -> Result<bool, Malformed> {
        let end = self.start.saturating_add(max);
        while self.missing > 0 {
            if self.buffer[self.start..self.filled].starts_with(&TLS_ALERT) {
                return Err(TLS);
            }
            let mut decoder = Decoder { frame: &self.buffer[..self.filled], at: self.scanned };
            let Some((kind, line)) = decoder.line()? else {
                return if self.filled > end { Err(TOO_LONG) } else { Ok(false) };
            };
            let more = match kind {
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => 0,
                b'$' | b'!' | b'=' => {
                    let length = number(line)?;
                    if length > MAX_STRING {
                        return Err(NOT_RESP);
                    }
                    if length >= 0 {
                        if decoder.at + length as usize > end {
                            return Err(TOO_LONG);
                        }
                        if decoder.at + length as usize + 2 > self.filled {
                            return Ok(false);
                        }
                        decoder.text(length as usize)?;
                    }
                    0
                }
                b'*' | b'~' | b'>' => number(line)?.clamp(0, MAX_STRING) as usize,
                b'%' => 2 * number(line)?.clamp(0, MAX_STRING) as usize,
                // An attribute comes before the value that it describes.
                b'|' => 2 * number(line)?.clamp(0, MAX_STRING) as usize + 1,
                _ => return Err(NOT_RESP),
            };
            self.missing = (self.missing - 1).checked_add(more).ok_or(TOO_LONG)?;
            self.scanned = decoder.at;
            if self.scanned.saturating_add(self.missing.saturating_mul(MIN_ITEM)) > end {
                return Err(TOO_LONG);
            }
        }
        Ok(true)
    }
}

struct Decoder<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// Reads a line: its first byte, and the rest without the end of the line. `None` if that end is not there yet.
    fn line(&mut self) -> Result<Option<(u8, &'a [u8])>, Malformed> {
        let rest = &self.frame[self.at.min(self.frame.len())..];
        let Some(length) = rest.iter().position(|byte| *byte == b'\r').filter(|at| rest.len() > at + 1) else {
            return Ok(None);
        };
        if rest[length + 1] != b'\n' {
            return Err(NOT_RESP);
        }
        let (kind, line) = rest[..length].split_first().unwrap_or((&0, &[]));
        self.at += length + 2;
        Ok(Some((*kind, line)))
    }

    /// Reads so many bytes and the end of a line.
    fn text(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let text = self.frame.get(self.at..self.at + length).ok_or(NOT_RESP)?;
        self.at += length + 2;
        if self.frame.get(self.at - 2..self.at) == Some(b"\r\n") { Ok(text) } else { Err(NOT_RESP) }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        if depth > MAX_DEPTH {
            return Err(NOT_RESP);
        }
        let (kind, line) = self.line()?.ok_or(NOT_RESP)?;
        Ok(match kind {
            b':' => Value::Int(number(line)?),
            b'$' => match self.bytes(line)? {
                Some(bytes) => Value::BulkString(bytes.to_vec()),
                None => Value::Nil,
            },
            b'*' | b'~' | b'>' => match number(line)? {
                length if length < 0 => Value::Nil,
                length => Value::Array(self.values(length as usize, depth)?),
            },
            b'%' => {
                let mut values = self.values(2 * number(line)?.max(0) as usize, depth)?.into_iter();
                let mut pairs = Vec::with_capacity(values.len() / 2);
                while let (Some(name), Some(value)) = (values.next(), values.next()) {
                    pairs.push((name, value));
                }
                Value::Map(pairs)
            }
            b'|' => {
                self.values(2 * number(line)?.max(0) as usize, depth)?;
                self.value(depth + 1)?
            }
            b'+' if line == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(line).into_owned()),
            b'-' => error_reply(line)?,
            b'!' => error_reply(self.bytes(line)?.ok_or(NOT_RESP)?)?,
            b'=' => Value::BulkString(self.bytes(line)?.and_then(|bytes| bytes.get(4..)).ok_or(NOT_RESP)?.to_vec()),
            b'_' => Value::Nil,
            b'#' => Value::Boolean(line == b"t"),
            b',' | b'(' => Value::BulkString(line.to_vec()),
            _ => return Err(NOT_RESP),
        })
    }

    fn values(&mut self, length: usize, depth: usize) -> Result<Vec<Value>, Malformed> {
        // The frame is whole, so each value has at least three bytes of it.
        let mut values = Vec::with_capacity(length.min(self.frame.len() / 3));
        for _ in 0..length {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn bytes(&mut self, length: &[u8]) -> Result<Option<&'a [u8]>, Malformed> {
        let length = number(length)?;
        if length < 0 {
            return Ok(None);
        }
        self.text(length as usize).map(Some)
    }
}

/// An error reply. Only the client library can construct one, from its text. The text reaches terminals and logs.
fn error_reply(text: &[u8]) -> Result<Value, Malformed> {
    let text: String =
        visible(without_place(String::from_utf8_lossy(text).trim_end())).chars().take(MAX_ERROR).collect();
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).map_err(|_| NOT_RESP)
}

/// The error of a command of the script, in the form of newer servers. Redis 6.2 puts the place in the script before
/// it, as in `@user_script: 7: -OOM command not allowed`.
fn without_place(text: &str) -> &str {
    let command = text.strip_prefix("@user_script: ").and_then(|text| text.split_once(": -"));
    command.filter(|(line, _)| line.bytes().all(|byte| byte.is_ascii_digit())).map_or(text, |(_, error)| error)
}

fn number(line: &[u8]) -> Result<i64, Malformed> {
    let (negative, digits) = match line {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return Err(NOT_RESP);
    }
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(NOT_RESP);
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Ok(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1_000_000;

    fn read(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<Value> {
        let (mut inbound, mut values) = (ReplyBuffer::new(), Vec::new());
        for chunk in chunks {
            let mut left = &chunk[..];
            while !left.is_empty() {
                let space = inbound.space();
                let part = left.len().min(space.len());
                space[..part].copy_from_slice(&left[..part]);
                inbound.received(part);
                left = &left[part..];
            }
            while let Some(value) = inbound.next(MAX).expect("replies") {
                values.push(value);
            }
        }
        assert!(inbound.is_empty());
        values
    }

    #[test]
    fn replies_are_the_same_in_whatever_pieces_they_come() {
        let long = [b"$20000\r\n".as_slice(), &[b'x'; 20_000], b"\r\n"].concat();
        let text: Vec<u8> = [
            b"+OK\r\n:-42\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*1\r\n:1\r\n-ERR no\r\n".as_slice(),
            b">2\r\n+message\r\n+x\r\n%1\r\n+mode\r\n$7\r\ncluster\r\n|1\r\n+a\r\n+b\r\n#t\r\n_\r\n,1.5\r\n",
            &long,
            b"!9\r\nMOVED 1 a\r\n=5\r\ntxt:a\r\n+PONG\r\n",
        ]
        .concat();
        let whole = read(std::iter::once(text.clone()));
        assert_eq!(whole, read(text.iter().map(|byte| vec![*byte])));
        assert_eq!(whole, read(text.chunks(7).map(<[u8]>::to_vec)));
        assert_eq!(whole.len(), 15);
        assert_eq!(whole[2], Value::BulkString(b"a\r\n".to_vec()));
        assert!(
            matches!(&whole[6], Value::Array(items) if matches!(&items[1], Value::ServerError(error) if error.code() == "ERR"))
        );
        assert_eq!(whole[8], Value::Boolean(true));
        assert!(matches!(&whole[12], Value::ServerError(error) if error.code() == "MOVED"));
    }

    #[test]
    fn an_error_reply_is_one_line_of_visible_text() {
        let long = format!("-ERR {}\r\n", "x".repeat(30_000));
        for text in [
            "-ERR \x1b[2J\x1b]0;owned\x07 \u{9b}31m\u{202e}\r\n",
            "!21\r\nERR a\nroot logged in\n\r\n",
            &long,
            "-\r\n",
            "!0\r\n\r\n",
        ] {
            let values = read(std::iter::once(text.as_bytes().to_vec()));
            let [Value::ServerError(error)] = &values[..] else { panic!("{values:?}") };
            let shown = format!("{} {}", error.code(), error.details().unwrap_or_default());
            assert!(shown.len() < 1_100 && !shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
        }
    }

    #[test]
    fn the_error_of_a_command_of_the_script_is_without_its_place() {
        let of = |text: &[u8]| {
            let values = read(std::iter::once(text.to_vec()));
            let [Value::ServerError(error)] = &values[..] else { panic!("{values:?}") };
            format!("{}|{}", error.code(), error.details().unwrap_or_default())
        };
        assert_eq!(of(b"-@user_script: 163: -OOM not allowed: -x.\r\n"), "OOM|not allowed: -x.");
        assert_eq!(of(b"-@user_script: 163: The user may not\r\n"), "@user_script:|163: The user may not");
        assert_eq!(of(b"-@user_script: k: -OOM\r\n"), "@user_script:|k: -OOM");
    }

    #[test]
    fn bytes_that_are_not_resp_are_rejected() {
        let wrong: [&[u8]; 5] = [b"HTTP/1.1 400\r\n", b"$x\r\n", b"$99999999999\r\n", b":\r\n", b"*1\r\n?\r\n"];
        for text in wrong {
            let mut inbound = ReplyBuffer::new();
            inbound.space()[..text.len()].copy_from_slice(text);
            inbound.received(text.len());
            assert!(inbound.next(MAX).is_err(), "{}", String::from_utf8_lossy(text));
        }
    }
}
