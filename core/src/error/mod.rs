//! The one error type: a stable code, one sentence, and where the error was found.

#[cfg(not(all(feature = "files", feature = "redis", feature = "tls")))]
pub(crate) mod missing_feature;

use std::borrow::Cow;
use std::sync::Arc;
use std::{fmt, io};

/// The kind of an error. Rust, Python and Node share the kinds.
///
/// The text of [`ErrorKind::code`] never changes, since programs compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A policy, a limit, a notation or a policy file is wrong.
    PolicyInvalid,
    /// The text is neither the name of a policy of this limiter nor a notation.
    PolicyUnknown,
    /// A cost is not a whole number from 1 to 2^53 - 1, or from 0 in a cost by units.
    CostInvalid,
    /// A key is too long, or no text.
    KeyInvalid,
    /// A store URL or an option is wrong.
    ConfigInvalid,
    /// The store could not be reached.
    StoreUnavailable,
    /// The store did not answer in time.
    StoreTimeout,
    /// The store answered with an error.
    StoreRejected,
    /// The limiter is closed.
    Closed,
}

impl ErrorKind {
    /// Every kind, for tables and tests.
    pub const ALL: &[Self] = &[
        Self::PolicyInvalid,
        Self::PolicyUnknown,
        Self::CostInvalid,
        Self::KeyInvalid,
        Self::ConfigInvalid,
        Self::StoreUnavailable,
        Self::StoreTimeout,
        Self::StoreRejected,
        Self::Closed,
    ];

    /// The stable code, the same in Rust, Python and Node.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::PolicyInvalid => "policy_invalid",
            Self::PolicyUnknown => "policy_unknown",
            Self::CostInvalid => "cost_invalid",
            Self::KeyInvalid => "key_invalid",
            Self::ConfigInvalid => "config_invalid",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreTimeout => "store_timeout",
            Self::StoreRejected => "store_rejected",
            Self::Closed => "closed",
        }
    }

    /// True if the store failed, so that `on_store_error` applies.
    #[must_use]
    pub const fn is_store(self) -> bool {
        matches!(self, Self::StoreUnavailable | Self::StoreTimeout | Self::StoreRejected)
    }
}

/// The place in a file or a text where an error was found. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceLocation {
    /// The file, when there is one.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl SourceLocation {
    /// A line and a column, of a file or of a text.
    #[must_use]
    pub const fn new(file: Option<String>, line: usize, column: usize) -> Self {
        Self { file, line, column }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", visible(file))?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Escapes foreign text so that it cannot act on a terminal or begin a line of a log: control characters, characters
/// that turn the direction of text, and noncharacters.
#[must_use]
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) { visible.extend(c.escape_default()) } else { visible.push(c) }
    }
    Cow::Owned(visible)
}

/// Stands before and after a name in the message of an error that is being made. Foreign texts have it escaped.
const NAME_MARK: char = '\u{1}';

/// Marks the name of an option or a call in a message, so that hosts can spell it as their language does.
pub(crate) fn named(name: &str) -> String {
    format!("{NAME_MARK}{name}{NAME_MARK}")
}

/// Why a call could not be answered. A denial is no error: it is a [`Decision`](crate::Decision).
///
/// Its `source` is the error below it, of a socket, a file or a store of your own, if there is one.
#[derive(Clone)]
pub struct Error {
    /// On the heap, so that a result which is no error is small.
    parts: Box<ErrorParts>,
}

#[derive(Clone)]
struct ErrorParts {
    kind: ErrorKind,
    message: String,
    /// The message with marks around the names of options and calls, if it has any that hosts spell in their own way.
    marked: Option<Box<str>>,
    location: Option<SourceLocation>,
    /// True if the call certainly did not run.
    did_not_run: bool,
    /// True if the store works, and the call lost to other processes until its deadline.
    is_contention: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { kind, message, location, did_not_run, source, .. } = &*self.parts;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("message", message)
            .field("location", location)
            .field("did_not_run", did_not_run)
            .field("source", source)
            .finish()
    }
}

/// Two errors are equal if their kinds, messages and locations are.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        fn said(error: &Error) -> (ErrorKind, &str, Option<&SourceLocation>) {
            (error.kind(), error.message(), error.location())
        }
        said(self) == said(other)
    }
}

impl Eq for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.parts.source.as_ref().map(|source| &**source as _)
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a kind, with a sentence that explains the problem and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (message, marked) = match message.into() {
            marked if marked.contains(NAME_MARK) => (marked.replace(NAME_MARK, ""), Some(marked.into())),
            message => (message, None),
        };
        let did_not_run = !kind.is_store();
        Self {
            parts: Box::new(ErrorParts {
                kind,
                message,
                marked,
                location: None,
                source: None,
                did_not_run,
                is_contention: false,
            }),
        }
    }

    /// Names the place where the error was found. The message begins with the location when it names a file.
    #[must_use]
    pub fn at(mut self, location: SourceLocation) -> Self {
        if location.file.is_some() {
            self.parts.message = format!("{location}: {}", self.parts.message);
        }
        // The names in a file or a notation have one spelling in all languages.
        self.parts.marked = None;
        self.parts.location = Some(location);
        self
    }

    /// `store_unavailable`, because the system starts no thread for calls to Redis.
    pub(crate) fn no_thread(source: &io::Error) -> Self {
        Self::new(ErrorKind::StoreUnavailable, format!("the thread for Redis cannot be started: {source}"))
            .because(source)
    }

    /// This error, with the error of the system that caused it.
    pub(crate) fn because(mut self, source: &io::Error) -> Self {
        // A system error is copied by its number, any other error by its sentence.
        let copy = source
            .raw_os_error()
            .map_or_else(|| io::Error::new(source.kind(), source.to_string()), io::Error::from_raw_os_error);
        self.parts.source = Some(Arc::new(copy));
        self
    }

    /// This error, with the error of an application's store that caused it.
    #[cfg(feature = "redis")]
    pub(crate) fn caused_by(mut self, cause: Box<dyn std::error::Error + Send + Sync>) -> Self {
        self.parts.source = Some(Arc::from(cause));
        self
    }

    pub(crate) fn policy(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::PolicyInvalid, message)
    }

    pub(crate) fn too_many_overrides(policy: &str, most: usize) -> Self {
        Self::config(format!(
            "the policy {policy:?} has {most} overrides, which is the most: remove one before another is added"
        ))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::ConfigInvalid, message)
    }

    /// This error, marked as that of a call that certainly did not run.
    pub(crate) fn of_no_run(mut self) -> Self {
        self.parts.did_not_run = true;
        self
    }

    /// This error, marked as that of a call that lost to other processes, while its store works.
    #[cfg(feature = "redis")]
    pub(crate) fn of_contention(mut self) -> Self {
        self.parts.is_contention = true;
        self
    }

    /// True if the call lost to other processes until its deadline. The store works, so it is not lost.
    pub(crate) const fn is_contention(&self) -> bool {
        self.parts.is_contention
    }

    /// True if the call certainly did not run, so that it may be made again. For other store errors the outcome is unknown.
    #[must_use]
    pub const fn did_not_run(&self) -> bool {
        self.parts.did_not_run
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.parts.kind
    }

    /// The stable code of [`Error::kind`].
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.parts.kind.code()
    }

    /// The sentence.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.parts.message
    }

    /// The sentence with the names of options and calls as a host spells them.
    pub(crate) fn message_for(&self, spell: impl Fn(&str) -> String) -> String {
        let Some(marked) = &self.parts.marked else { return self.parts.message.clone() };
        let parts = marked.split(NAME_MARK).enumerate();
        parts.map(|(index, part)| if index % 2 == 1 { spell(part) } else { part.to_owned() }).collect()
    }

    /// The place where it was found, if it is about a text or a file.
    #[must_use]
    pub const fn location(&self) -> Option<&SourceLocation> {
        self.parts.location.as_ref()
    }
}
