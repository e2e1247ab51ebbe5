//! Keys for names that their owners may have chosen, for secrets that must not be stored as they are, and for clients without a
//! name. Also the key under which a place counts one of these. No text is two of them: `tests/http/keys.json` has the rules.

use std::borrow::Cow;
use std::net::IpAddr;

/// The prefix of the key of a name that reads like another key.
const NAME: &str = "name:";
/// The prefix of the key of a client without a name.
const ANONYMOUS: &str = "anonymous:";

/// A digest to use as a key instead of a secret such as an API key: 128 bits of BLAKE3 as 32 hexadecimal digits.
#[must_use]
pub fn hashed(secret: &str) -> String {
    let hex = blake3::hash(secret.as_bytes()).to_hex();
    hex[..32].to_owned()
}

/// The key of a client without a name, by its address. It differs from the address alone, so that a client that may choose its
/// name cannot choose the address of another client.
#[must_use]
pub fn anonymous(client: &str) -> String {
    format!("{ANONYMOUS}{client}")
}

/// The key of a user, or of another name that its owner may have chosen. It is the name itself, unless that reads like
/// the key of an address or of a client without a name. Then it is `name:` and the name. The digest of a secret needs
/// no such mark, because only a client that knows the secret can take its digest as a name.
#[must_use]
pub fn named(name: &str) -> Cow<'_, str> {
    let is_marked = [NAME, ANONYMOUS].iter().any(|mark| name.starts_with(mark));
    if is_marked || is_address(name) { Cow::Owned(format!("{NAME}{name}")) } else { Cow::Borrowed(name) }
}

/// True if [`ClientIp::key`](super::ClientIp::key) may return this text: an address, a network, `unix`, `unknown`.
fn is_address(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    matches!(text, "unix" | "unknown") || (address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok())
}

/// The key under which a limit counts `key`, for `peek`, `clear` and the like. `place` is where a notation is written,
/// `""` for one of a whole application, and `None` for a policy with a name, which counts alike wherever it is used.
/// `method` is the method of the request, if each method has its own budget.
///
/// The place, the method and the key are parts, separated by a blank. A part that contains a blank or begins with a
/// quotation mark stands in quotation marks, with a backslash before each mark and each backslash in it. Before a
/// method there is a place, `""` if it has no name. The key of a policy with a name, without a method, is not quoted
/// unless it begins with a quotation mark.
///
/// ```
/// use tidegate::http::placed_key;
///
/// assert_eq!(placed_key(Some("login"), Some("POST"), "alice"), "login POST alice");
/// assert_eq!(placed_key(Some("login"), None, "John Smith"), r#"login "John Smith""#);
/// assert_eq!(placed_key(None, None, "John Smith"), "John Smith");
/// ```
#[must_use]
pub fn placed_key(place: Option<&str>, method: Option<&str>, key: &str) -> String {
    let is_alone = place.is_none() && method.is_none();
    let key = if is_alone && !key.starts_with('"') { Cow::Borrowed(key) } else { part(key) };
    match (place.unwrap_or_default(), method) {
        ("", None) => key.into_owned(),
        ("", Some(method)) => format!("\"\" {method} {key}"),
        (place, None) => format!("{} {key}", part(place)),
        (place, Some(method)) => format!("{} {method} {key}", part(place)),
    }
}

fn part(text: &str) -> Cow<'_, str> {
    if !text.starts_with('"') && !text.contains(' ') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}
