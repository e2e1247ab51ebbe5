//! Writes a command of Redis in place: an array of words.

/// Begins a command of so many words.
pub(super) fn begin(out: &mut Vec<u8>, words: usize) {
    line(out, b'*', words);
}

pub(super) fn word(out: &mut Vec<u8>, word: &[u8]) {
    begin_word(out, word.len());
    out.extend_from_slice(word);
    end_word(out);
}

pub(super) fn number(out: &mut Vec<u8>, number: usize) {
    let mut digits = Digits::default();
    word(out, digits.of(number));
}

/// The bytes from here to [`end_word`] are one word of this length.
pub(super) fn begin_word(out: &mut Vec<u8>, bytes: usize) {
    line(out, b'$', bytes);
}

pub(super) fn end_word(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, mark: u8, number: usize) {
    out.push(mark);
    out.extend_from_slice(Digits::default().of(number));
    end_word(out);
}

/// Room for the digits of any number. `format!` takes several times as long, for each word of each call.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, mut number: usize) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written_as_redis_reads_them() {
        let mut out = Vec::new();
        begin(&mut out, 3);
        word(&mut out, b"EVALSHA");
        number(&mut out, 0);
        begin_word(&mut out, 12);
        out.extend_from_slice(&[0xff; 12]);
        end_word(&mut out);
        assert_eq!(out, [b"*3\r\n$7\r\nEVALSHA\r\n$1\r\n0\r\n$12\r\n", &[0xff; 12][..], b"\r\n"].concat());
        assert_eq!(Digits::default().of(usize::MAX), usize::MAX.to_string().as_bytes());
    }
}
