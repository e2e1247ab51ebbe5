//! The one error type: a stable code, one sentence, and where the error was found.

use std::fmt;

/// What went wrong. Rust, Python and Node share the kinds.
///
/// The text of [`ErrorKind::code`] is part of the public contract and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A policy, a limit, a notation or a policy file is wrong.
    PolicyInvalid,
    /// The text is neither the name of a policy of this limiter nor a notation.
    PolicyUnknown,
    /// A cost is no whole number from 1 to 2^53 - 1.
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
    pub const ALL: [Self; 9] = [
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

    /// Whether the store failed, so that `on_store_error` applies.
    #[must_use]
    pub const fn is_store(self) -> bool {
        matches!(self, Self::StoreUnavailable | Self::StoreTimeout | Self::StoreRejected)
    }
}

/// Where in a file or a text an error was found. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file, when there is one.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a call could not be answered. A denial is no error: it is a [`Decision`](crate::Decision).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    location: Option<SourceLocation>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a kind, with a sentence that says what is wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), location: None }
    }

    /// The same error, found at a location. The message begins with the location when it names a file.
    #[must_use]
    pub fn at(mut self, location: SourceLocation) -> Self {
        if location.file.is_some() {
            self.message = format!("{location}: {}", self.message);
        }
        self.location = Some(location);
        self
    }

    pub(crate) fn policy(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::PolicyInvalid, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::ConfigInvalid, message)
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable code of [`Error::kind`].
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The sentence.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where it was found, if it is about a text or a file.
    #[must_use]
    pub const fn location(&self) -> Option<&SourceLocation> {
        self.location.as_ref()
    }
}
