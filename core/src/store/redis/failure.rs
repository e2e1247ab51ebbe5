//! What an error of the client means to a caller.

use std::time::Duration;

use redis::{RedisError, ServerError};

use crate::error::{Error, ErrorKind};
use crate::script;

/// The call's error. `shown` is the server without its secrets.
pub(super) fn of(error: &RedisError, shown: &str, timeout: Duration) -> Error {
    if error.is_timeout() {
        return late(shown, timeout);
    }
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return Error::new(
            ErrorKind::StoreRejected,
            format!("{shown} refused the user or the password: give the right ones in the store URL"),
        );
    }
    if let Ok(server) = ServerError::try_from(error.clone()) {
        return script::rejected(&server);
    }
    Error::new(
        ErrorKind::StoreUnavailable,
        format!("{shown} cannot be reached: {}: check that the server runs and that the URL is right", words(error)),
    )
}

/// The server did not answer in time.
pub(super) fn late(shown: &str, timeout: Duration) -> Error {
    Error::new(ErrorKind::StoreTimeout, format!("{shown} did not answer within {} ms", timeout.as_millis()))
}

/// The server's answer had no answer to this call.
pub(super) fn silence(shown: &str) -> Error {
    Error::new(ErrorKind::StoreRejected, format!("{shown} answered without an answer"))
}

fn words(error: &RedisError) -> String {
    let text = error.to_string();
    text.trim_end_matches('.').to_owned()
}
