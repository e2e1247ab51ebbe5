//! The options that make a key in the same way as a web service makes it from a request.

use clap::Args;
use tidegate::Policy;
use tidegate::http::{hashed, placed_key};

use crate::{Result, invalid};

#[derive(Debug, Args)]
pub(crate) struct KeyOptions {
    /// KEY is the value of this header, which your service hashes
    #[arg(long, value_name = "NAME", value_parser = header_name, help_heading = "Key")]
    header: Option<String>,
    /// The place of a notation in your code: an endpoint, a function or a route. Use "*" for a whole application of Python
    /// or Hono, and "" for that of others
    #[arg(long, value_name = "PLACE", help_heading = "Key")]
    place: Option<String>,
    /// The method of the request, if each method has its own budget
    #[arg(long, value_name = "METHOD", help_heading = "Key")]
    method: Option<String>,
}

impl KeyOptions {
    /// Returns the key under which the policy counts a request, from the KEY that the user has named.
    pub(crate) fn key(&self, named: &str, policy: &Policy) -> Result<String> {
        if self.place.is_some() && policy.name() != policy.to_string() {
            return Err(invalid(format!(
                "--place is for a notation: leave it out, because the policy {:?} counts alike in all places",
                policy.name()
            )));
        }
        let key = if self.header.is_some() { &*hashed(named) } else { named };
        Ok(placed_key(self.place.as_deref(), self.method.as_deref(), key))
    }
}

/// The name of a header, without its value.
fn header_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([':', '=', ' ']) {
        return Err(
            "give the name of the header alone, and its value as KEY, as in --header X-API-Key \"$VALUE\"".to_owned()
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_requests() {
        let (named, notation) = (Policy::parse("5/s; 9/m").and_then(|it| it.named("login")), Policy::parse("5/s; 9/m"));
        let key = |policy: &tidegate::Result<Policy>, header: &str, place: Option<&str>, method: Option<&str>| {
            let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let options =
                KeyOptions { header: text(header), place: place.map(str::to_owned), method: method.map(str::to_owned) };
            options.key("k 1", policy.as_ref().expect("a policy"))
        };
        let (digest, post) = (hashed("k 1"), Some("POST"));
        assert_eq!(key(&named, "", None, None).expect("a key"), "k 1");
        assert_eq!(key(&named, "X-API-Key", None, None).expect("a key"), digest);
        assert_eq!(key(&named, "X-API-Key", None, post).expect("a key"), format!("\"\" POST {digest}"));
        assert_eq!(key(&notation, "", Some("search"), None).expect("a key"), "search \"k 1\"");
        assert_eq!(key(&notation, "X-API-Key", Some("search"), post).expect("a key"), format!("search POST {digest}"));
        assert_eq!(key(&notation, "", Some(""), None).expect("a key"), "\"k 1\"");
        let refused = key(&named, "", Some("search"), None).expect_err("a place");
        assert!(refused.message().contains("\"login\" counts alike"), "{}", refused.message());
    }
}
