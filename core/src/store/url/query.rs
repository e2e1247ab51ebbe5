//! The options in the query of a store URL.

use super::secrets;
use crate::error::{Error, Result};

/// The values of the options that a query gives, in the order of their names.
///
/// # Errors
/// `config_invalid` for an option that is unknown or is given twice.
pub(in crate::store::url) fn found_options(scheme: &str, query: &str, known: &[&str]) -> Result<Vec<Option<String>>> {
    let mut found = vec![None; known.len()];
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let Some(index) = known.iter().position(|known| *known == name) else {
            // The name is not shown: the text after a & in a password looks like one.
            return Err(Error::config(format!(
                "a store URL of {scheme}:// has no such option: it has {}. User and password stand before the host; {}",
                known.join(", "),
                secrets::ADVICE
            )));
        };
        if found[index].replace(value.into_owned()).is_some() {
            return Err(Error::config(format!("the store URL gives {name:?} twice")));
        }
    }
    Ok(found)
}
