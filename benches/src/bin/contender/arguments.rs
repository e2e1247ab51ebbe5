//! The arguments of a contender, `name=value` in every language.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

pub(crate) struct Arguments(HashMap<String, String>);

impl Arguments {
    pub(crate) fn of_process() -> Self {
        let pair = |argument: String| argument.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(std::env::args().skip(1).filter_map(pair).collect())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("{name}=… is missing"))
    }

    /// The text of an argument that may be left out.
    pub(crate) fn text_or<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        self.0.get(name).map_or(otherwise, String::as_str)
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> T {
        let text = self.text(name);
        text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number"))
    }

    pub(crate) fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.number(name))
    }
}
