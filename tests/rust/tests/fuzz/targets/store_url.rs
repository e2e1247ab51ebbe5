//! The URL of a store. No text that shows it has a piece of a user, a password or an option, and messages have a
//! bounded length.

use tidegate::{Limiter, OnStoreError};

use crate::fuzz::outcome::shape;

pub(crate) const WORDS: &[&str] = &[
    "redis://",
    "rediss://",
    "valkey://",
    "memory://",
    "redis+unix://",
    "unix://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "valkeys+cluster://",
    "https://",
    "redis:/",
    "127.0.0.1:1",
    "[::1]:2",
    "localhost",
    ":",
    "@",
    "/",
    "?",
    "#",
    "&",
    ";",
    "=",
    ",",
    "%",
    "%2F",
    "%40",
    "%00",
    "0",
    "mymaster",
    "protocol=3",
    "password_file=/none",
    "client_name=a",
    "ssl_ca_certs=/none",
    "ssl_certfile=/none",
    "ssl_keyfile=/none",
    "ssl_cert_reqs=none",
    "read_from=replica",
    "sentinel_username=",
    "sentinel_password=",
    "sentinel_password_file=/none",
    "max_keys=10",
    "max_bytes=1GB",
    "db=1",
    "QXZJ",
    "VKWY",
    "QQQQ",
    "XYXY",
    "ZKZK",
    "é",
    "\u{1F600}",
    " ",
    "\n",
    "\t",
    "\\",
];

/// A piece of four characters with one of these comes from the URL, because no message has it by itself.
const MARKS: &str = "QXZJVKWY";
const LONGEST_MESSAGE: usize = 1_000;

/// The places of a URL that may hold a secret: the part before the host, and every option. If it is not clear which
/// part is the host, the whole URL.
fn secret_places(url: &str) -> Vec<&str> {
    let Some((_, rest)) = url.split_once("://") else { return vec![url] };
    let (rest, options) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let has_authority = !rest.starts_with('/');
    let before_host = if has_authority { rest.rfind('@').map_or("", |at| &rest[..at]) } else { "" };
    if has_authority && !rest.contains('@') && options.contains('@') {
        // A ? in a password looks like the end of the host.
        return vec![rest, options];
    }
    vec![before_host, options]
}

fn pieces<'a>(places: &[&'a str]) -> Vec<&'a str> {
    let of = |place: &&'a str| {
        let place: &'a str = place;
        let starts: Vec<usize> = place.char_indices().map(|(at, _)| at).collect();
        let piece = move |at: usize| {
            let end = place[at..].char_indices().nth(4).map_or(place.len(), |(length, _)| at + length);
            &place[at..end]
        };
        // A message may put its own quote or blank next to the same characters.
        let counts = |piece: &&str| {
            piece.chars().count() == 4
                && piece.contains(|c| MARKS.contains(c))
                && piece.chars().all(char::is_alphanumeric)
        };
        starts.into_iter().map(piece).filter(counts)
    };
    places.iter().flat_map(of).collect()
}

pub(crate) fn run(input: &[u8]) -> String {
    let url = String::from_utf8_lossy(input);
    let builder = Limiter::builder().store(&*url).on_store_error(OnStoreError::Raise);
    let mut shown = vec![format!("{builder:?}"), tidegate::host::without_secrets(&url)];
    let outcome = match builder.build() {
        Ok(limiter) => {
            shown.push(limiter.described());
            limiter.close();
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            let options = url.split_once('?').map_or(0, |(_, options)| options.split('&').count());
            format!("{scheme} {} {options}", url.split(',').count().min(4))
        }
        Err(error) => {
            assert_eq!(error.code(), "config_invalid", "{error}");
            assert!(error.message().len() <= LONGEST_MESSAGE, "{} bytes: {error}", error.message().len());
            shown.push(format!("{error} {error:?}"));
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            shape(&error.message().replacen(&format!("{scheme}://"), "", 1))
        }
    };
    let places = secret_places(&url);
    for piece in pieces(&places) {
        // A piece that stands elsewhere too, in a host or a path, may be shown.
        let elsewhere = url.matches(piece).count() > places.iter().map(|place| place.matches(piece).count()).sum();
        if elsewhere {
            continue;
        }
        for message in &shown {
            assert!(!message.contains(piece), "{piece:?} of {url:?} is shown: {message}");
        }
    }
    outcome
}
