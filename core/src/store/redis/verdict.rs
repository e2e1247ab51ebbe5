//! What a reply says of where the call belongs. All of these mean that it did not run.

use redis::{ServerError, Value};

use crate::store::url::Address;

#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It was answered, if only with an error of its own.
    Answered,
    /// The server does not know the script.
    Unknown,
    /// The slot is served there.
    Moved(u16, Address),
    /// This time it is to be asked there.
    Ask(Address),
    /// Its keys are on their way from one node to another.
    Split(ServerError),
    /// This server does not serve now; where there are others, one of them may.
    Astray(ServerError),
    /// This server does not serve now, and no other would.
    Refused(ServerError),
}

impl Verdict {
    /// `here` is who answered; `others` whether there are several servers.
    pub(super) fn of(reply: &Value, here: &Address, others: bool) -> Self {
        match reply {
            Value::ServerError(error) => Self::of_error(error, here, others),
            // On a replica nothing of a script is written; what was denied there is asked again too.
            Value::Array(items) if others => {
                let astray = items.iter().find_map(|item| match item {
                    Value::ServerError(error) if error.code() == "READONLY" => Some(error),
                    _ => None,
                });
                astray.map_or(Self::Answered, |error| Self::Astray(error.clone()))
            }
            _ => Self::Answered,
        }
    }

    fn of_error(error: &ServerError, here: &Address, others: bool) -> Self {
        let error = error.clone();
        match error.code() {
            "NOSCRIPT" => Self::Unknown,
            "MOVED" | "ASK" if others => {
                let mut words = error.details().unwrap_or_default().split(' ');
                let slot = words.next().and_then(|slot| slot.parse().ok());
                match (slot, words.next().and_then(|text| address(text, here))) {
                    (Some(slot), Some(address)) if error.code() == "MOVED" => Self::Moved(slot, address),
                    (_, Some(address)) if error.code() == "ASK" => Self::Ask(address),
                    _ => Self::Refused(error),
                }
            }
            "TRYAGAIN" => Self::Split(error),
            "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" if others => Self::Astray(error),
            "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" => Self::Refused(error),
            _ => Self::Answered,
        }
    }
}

/// `host:port`; a node that does not know its own name leaves it out, and means the one it was called by.
fn address(text: &str, here: &Address) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(Address::Tcp(host_or(host, here)?, port.parse().ok()?))
}

/// The host a node gave, or where it was found when it gave none.
pub(super) fn host_or(host: &str, here: &Address) -> Option<std::sync::Arc<str>> {
    match here {
        _ if !matches!(host, "" | "?") => Some(host.into()),
        Address::Tcp(host, _) => Some(std::sync::Arc::clone(host)),
        Address::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str, others: bool) -> Verdict {
        let reply = redis::parse_redis_value(text.as_bytes()).expect("a reply");
        Verdict::of(&reply, &Address::Tcp("here".into(), 1), others)
    }

    #[test]
    fn replies_say_where_a_call_belongs() {
        let at = |host: &str, port| Address::Tcp(host.into(), port);
        assert_eq!(verdict("-MOVED 7 10.0.0.1:7001\r\n", true), Verdict::Moved(7, at("10.0.0.1", 7001)));
        assert_eq!(verdict("-MOVED 7 :7001\r\n", true), Verdict::Moved(7, at("here", 7001)));
        assert_eq!(verdict("-ASK 7 ::1:7001\r\n", true), Verdict::Ask(at("::1", 7001)));
        assert_eq!(verdict("-NOSCRIPT No matching script\r\n", false), Verdict::Unknown);
        assert!(matches!(verdict("-TRYAGAIN Multiple keys\r\n", true), Verdict::Split(_)));
        assert!(matches!(verdict("-LOADING Redis is loading\r\n", false), Verdict::Refused(_)));
        assert!(matches!(verdict("*3\r\n:1\r\n*0\r\n-READONLY no\r\n", true), Verdict::Astray(_)));
        for text in ["*3\r\n:1\r\n*0\r\n-OOM no\r\n", "-NOPERM no\r\n", "-OOM no\r\n"] {
            assert_eq!(verdict(text, true), Verdict::Answered);
        }
        assert_eq!(verdict("*3\r\n:1\r\n*0\r\n-READONLY no\r\n", false), Verdict::Answered);
    }
}
