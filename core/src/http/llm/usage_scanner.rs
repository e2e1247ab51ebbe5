//! Finds the usage in JSON that comes in pieces, without keeping the rest.

/// The most bytes of a usage. A longer object is ignored.
const MAX_USAGE: usize = 8 * 1_024;
/// The most bytes of a name that are kept.
const MAX_NAME: usize = 12;
/// The name of a usage.
const USAGE: &[u8] = b"usage";
/// The fields that may contain it: in events of Anthropic's messages, of OpenAI's responses, and of Groq's chats.
/// Otherwise it is a field of the whole object.
const PARENTS: [&[u8]; 3] = [b"message", b"response", b"x_groq"];

/// The place of a usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsagePlace {
    /// In the object itself.
    Whole,
    /// In the message that an event begins.
    Message,
    /// In another field.
    Other,
}

/// The state of the scan of an object that has not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct UsageScanner {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    /// The first bytes of the last text, which may be a name.
    name: Vec<u8>,
    /// The field of the object, and of the object in that field.
    fields: [FieldName; 2],
    /// The depth of the usage, and its bytes so far.
    usage: Option<(u32, Vec<u8>)>,
    /// True if the next value is a usage.
    is_awaited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FieldName {
    #[default]
    Other,
    Usage,
    Parent(usize),
}

impl UsageScanner {
    /// Forgets the bytes before, because another object begins.
    pub(super) fn restart(&mut self) {
        *self = Self { name: std::mem::take(&mut self.name), ..Self::default() };
        self.name.clear();
    }

    /// Reads a byte. Returns a usage that ends with it.
    pub(super) fn push(&mut self, byte: u8) -> Option<(UsagePlace, Vec<u8>)> {
        if let Some((_, usage)) = &mut self.usage {
            if usage.len() < MAX_USAGE {
                usage.push(byte);
            } else {
                self.usage = None;
            }
        }
        if self.in_string {
            self.push_in_string(byte);
            return None;
        }
        if byte.is_ascii_whitespace() {
            return None;
        }
        let awaited = std::mem::take(&mut self.is_awaited);
        match byte {
            b'"' => {
                self.in_string = true;
                self.name.clear();
            }
            b':' => self.name_ended(),
            b'{' | b'[' => {
                if awaited && byte == b'{' {
                    self.usage = Some((self.depth, vec![byte]));
                }
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.fields[0] = FieldName::Other;
                }
                return self.usage_ended();
            }
            _ => {}
        }
        None
    }

    fn push_in_string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
        if self.in_string && self.name.len() < MAX_NAME {
            self.name.push(byte);
        }
    }

    fn name_ended(&mut self) {
        let parent = || PARENTS.iter().position(|parent| **parent == self.name[..]).map(FieldName::Parent);
        let field = if self.name == USAGE { FieldName::Usage } else { parent().unwrap_or_default() };
        match self.depth {
            1 => self.fields = [field, FieldName::Other],
            2 => self.fields[1] = field,
            _ => return,
        }
        self.is_awaited = match (self.depth, self.fields) {
            (1, [FieldName::Usage, _]) | (2, [FieldName::Parent(_), FieldName::Usage]) => self.usage.is_none(),
            _ => false,
        };
    }

    fn usage_ended(&mut self) -> Option<(UsagePlace, Vec<u8>)> {
        let (_, usage) = self.usage.take_if(|(depth, _)| *depth == self.depth)?;
        let place = match self.fields[0] {
            FieldName::Usage => UsagePlace::Whole,
            FieldName::Parent(0) => UsagePlace::Message,
            _ => UsagePlace::Other,
        };
        Some((place, usage))
    }
}
