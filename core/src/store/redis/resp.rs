//! Replies off the wire: where one ends, and what it says.

use redis::Value;

/// What a buffer holds when nothing arrives, and what a long reply may leave behind.
const ROOM: usize = 8 * 1_024;
const KEPT: usize = 1_024 * 1_024;
/// Redis sends no longer strings.
const LONGEST: i64 = 512 * 1_024 * 1_024;
/// Our script nests twice, the map of a cluster four times.
const DEEPEST: usize = 16;

/// What has arrived and was not read yet.
pub(super) struct Inbound {
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    /// How far the reply at `start` was looked through, and how many of its items are missing. A reply that comes in
    /// many pieces is looked through once.
    seen: usize,
    missing: usize,
}

/// What is no reply.
#[derive(Debug)]
pub(super) struct Garbled;

impl Inbound {
    pub(super) fn new() -> Self {
        Self { buffer: Vec::new(), start: 0, filled: 0, seen: 0, missing: 1 }
    }

    /// Where more may be put; `arrived` says how much was.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.filled {
            (self.start, self.seen, self.filled) = (0, self.seen - self.start, 0);
            if self.buffer.len() > KEPT {
                self.buffer = Vec::new();
            }
        }
        if self.filled == self.buffer.len() {
            if self.start > self.buffer.len() / 2 {
                self.buffer.copy_within(self.start..self.filled, 0);
                (self.seen, self.filled, self.start) = (self.seen - self.start, self.filled - self.start, 0);
            } else {
                self.buffer.resize((self.buffer.len() * 2).max(ROOM), 0);
            }
        }
        &mut self.buffer[self.filled..]
    }

    pub(super) fn arrived(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.filled
    }

    /// The next reply, if all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Garbled> {
        loop {
            if !self.is_whole()? {
                return Ok(None);
            }
            let frame = &self.buffer[self.start..self.seen];
            let pushed = frame.first() == Some(&b'>');
            let value = if pushed { Value::Nil } else { Reader { frame, at: 0 }.value(0)? };
            (self.start, self.missing) = (self.seen, 1);
            // Nobody asked for what is pushed.
            if !pushed {
                return Ok(Some(value));
            }
        }
    }

    fn is_whole(&mut self) -> Result<bool, Garbled> {
        while self.missing > 0 {
            let mut reader = Reader { frame: &self.buffer[..self.filled], at: self.seen };
            let Some((kind, line)) = reader.line() else { return Ok(false) };
            let more = match kind {
                b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => 0,
                b'$' | b'!' | b'=' => {
                    let length = number(line)?;
                    if length > LONGEST {
                        return Err(Garbled);
                    }
                    if length >= 0 {
                        reader.at += length as usize + 2;
                        if reader.at > self.filled {
                            return Ok(false);
                        }
                    }
                    0
                }
                b'*' | b'~' | b'>' => number(line)?.clamp(0, LONGEST) as usize,
                b'%' => 2 * number(line)?.clamp(0, LONGEST) as usize,
                // An attribute comes before what it is about.
                b'|' => 2 * number(line)?.clamp(0, LONGEST) as usize + 1,
                _ => return Err(Garbled),
            };
            self.missing = (self.missing - 1).checked_add(more).ok_or(Garbled)?;
            self.seen = reader.at;
        }
        Ok(true)
    }
}

struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A line's first byte and the rest of it, without its end; moves past it.
    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let rest = self.frame.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == b'\r').filter(|at| rest.len() > at + 1)?;
        let (kind, line) = rest[..length].split_first().unwrap_or((&0, &[]));
        self.at += length + 2;
        Some((*kind, line))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Garbled> {
        if depth > DEEPEST {
            return Err(Garbled);
        }
        let from = self.at;
        let (kind, line) = self.line().ok_or(Garbled)?;
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
            b'-' => refusal(&self.frame[from..self.at])?,
            b'!' => {
                self.bytes(line)?;
                refusal(&self.frame[from..self.at])?
            }
            b'=' => Value::BulkString(self.bytes(line)?.and_then(|bytes| bytes.get(4..)).ok_or(Garbled)?.to_vec()),
            b'_' => Value::Nil,
            b'#' => Value::Boolean(line == b"t"),
            b',' | b'(' => Value::BulkString(line.to_vec()),
            _ => return Err(Garbled),
        })
    }

    fn values(&mut self, length: usize, depth: usize) -> Result<Vec<Value>, Garbled> {
        // The frame is whole, so each value has at least three bytes of it.
        let mut values = Vec::with_capacity(length.min(self.frame.len() / 3));
        for _ in 0..length {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn bytes(&mut self, length: &[u8]) -> Result<Option<&'a [u8]>, Garbled> {
        let length = number(length)?;
        if length < 0 {
            return Ok(None);
        }
        let bytes = self.frame.get(self.at..self.at + length as usize).ok_or(Garbled)?;
        self.at += length as usize + 2;
        Ok(Some(bytes))
    }
}

/// Only the client makes errors of servers, from their text.
fn refusal(frame: &[u8]) -> Result<Value, Garbled> {
    redis::parse_redis_value(frame).map_err(|_| Garbled)
}

fn number(line: &[u8]) -> Result<i64, Garbled> {
    let (negative, digits) = match line {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return Err(Garbled);
    }
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Garbled);
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Ok(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<Value> {
        let (mut inbound, mut values) = (Inbound::new(), Vec::new());
        for chunk in chunks {
            let mut left = &chunk[..];
            while !left.is_empty() {
                let room = inbound.room();
                let part = left.len().min(room.len());
                room[..part].copy_from_slice(&left[..part]);
                inbound.arrived(part);
                left = &left[part..];
            }
            while let Some(value) = inbound.next().expect("replies") {
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
    fn what_is_no_reply_is_said_to_be_none() {
        let wrong: [&[u8]; 5] = [b"HTTP/1.1 400\r\n", b"$x\r\n", b"$99999999999\r\n", b":\r\n", b"*1\r\n?\r\n"];
        for text in wrong {
            let mut inbound = Inbound::new();
            inbound.room()[..text.len()].copy_from_slice(text);
            inbound.arrived(text.len());
            assert!(inbound.next().is_err(), "{}", String::from_utf8_lossy(text));
        }
    }
}
