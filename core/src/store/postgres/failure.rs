//! The meaning of an error of PostgreSQL for a call.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::error::{Error, ErrorKind};
use crate::store::swap::Event;

/// The codes with which a server refuses a name that it does not know, has already, or has for another statement.
const FOREIGN_NAME: [&str; 4] = ["26000", "42P05", "08P01", "22P03"];

/// Why a question has no answer.
#[derive(Debug)]
pub(super) enum PostgresFailure {
    /// It certainly did not run.
    NotRun(Error),
    /// It may have run.
    Unknown(Error),
    /// It did not run, because of another process. It is asked again.
    Conflict,
    /// The table is missing.
    NoTable(Error),
    /// It did not run, because the name of its statement means another one here.
    ForeignName(Error),
}

impl PostgresFailure {
    /// An error while a statement ran. `shown` is the URL without secrets.
    pub(super) fn of(error: &tokio_postgres::Error, table: &str, shown: &str) -> Self {
        let Some(answer) = error.as_db_error() else {
            let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
            return Self::Unknown(Error::new(
                ErrorKind::StoreUnavailable,
                format!("{shown} cannot be reached: {cause}"),
            ));
        };
        let code = answer.code();
        let message = format!("{shown} answered: {} ({})", answer.message(), code.code());
        if FOREIGN_NAME.contains(&code.code()) {
            return Self::ForeignName(Error::new(ErrorKind::StoreRejected, message));
        }
        let retried = [
            SqlState::DIVISION_BY_ZERO,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
            // The process was stopped while it had rows locked.
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        if retried.contains(code) {
            return Self::Conflict;
        }
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Self::NotRun(contended(shown));
        }
        if *code == SqlState::UNDEFINED_TABLE {
            return Self::NoTable(Error::new(
                ErrorKind::StoreRejected,
                format!(
                    "the table {table} is missing in {shown}: make it with `tidegate setup URL`, or add create=yes to the options of \
                     the URL"
                ),
            ));
        }
        // The classes of connections, of resources and of an intervention by the operator.
        let is_down = ["08", "53", "57"].iter().any(|class| code.code().starts_with(class));
        Self::NotRun(Error::new(if is_down { ErrorKind::StoreUnavailable } else { ErrorKind::StoreRejected }, message))
    }

    /// The same for a statement that was certainly not sent.
    pub(super) fn of_no_run(self) -> Self {
        match self {
            Self::Unknown(error) => Self::NotRun(error.of_no_run()),
            other => other,
        }
    }

    pub(super) fn into_event(self, shown: &str) -> Event {
        match self {
            Self::NotRun(error) | Self::NoTable(error) | Self::ForeignName(error) => Event::NotRun(error),
            Self::Unknown(error) => Event::Unknown(error),
            Self::Conflict => Event::NotRun(contended(shown)),
        }
    }

    pub(super) fn into_error(self, shown: &str) -> Error {
        match self {
            Self::NotRun(error) | Self::NoTable(error) | Self::ForeignName(error) => error.of_no_run(),
            Self::Unknown(error) => error,
            Self::Conflict => contended(shown),
        }
    }
}

/// True for the answer of a pooler, or of a server of another kind, that does not know the options of a connection.
pub(super) fn refuses_options(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| ["08", "0A", "22", "42"].iter().any(|class| code.code().starts_with(class)))
}

pub(super) fn timed_out(shown: &str, within: Option<Duration>) -> Error {
    let within = within.map_or_else(|| "in time".to_owned(), |within| format!("within {} ms", within.as_millis()));
    Error::new(ErrorKind::StoreTimeout, format!("{shown} did not answer {within}"))
}

/// The error of a call that another process was in the way of.
fn contended(shown: &str) -> Error {
    timed_out(shown, None).of_contention()
}

pub(super) fn foreign_name(shown: &str) -> Error {
    let message = format!("{shown} ran the statement of another process: leave prepare=yes out behind a pooler");
    Error::new(ErrorKind::StoreRejected, message)
}
