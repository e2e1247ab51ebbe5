//! The names under which notations are counted. A notation counts for its layer, under the same name in every process.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::process::lock::InheritedMutex;

use crate::error::{Error, Result};

/// Exists as long as a layer counts a notation. It ends with the last copy of the layer.
#[derive(Debug)]
pub(super) struct PlaceUse;

/// The limiter, the place and the notation.
type Used = (usize, String, String);

static USED: InheritedMutex<BTreeMap<Used, Weak<PlaceUse>>> = InheritedMutex::new(BTreeMap::new());

/// Claims a notation at a place of a limiter.
///
/// # Errors
/// `config_invalid` if another layer of the limiter has claimed it, because both would share one budget.
pub(super) fn claim(limiter: usize, place: &str, notation: &str) -> Result<Arc<PlaceUse>> {
    let mut used = USED.lock();
    used.retain(|_, claimed| claimed.strong_count() > 0);
    let claimed = used.entry((limiter, place.to_owned(), notation.to_owned())).or_default();
    if claimed.strong_count() > 0 {
        let shown: String = notation.chars().take(80).collect();
        return Err(Error::config(format!(
            "two layers of this limiter count {shown:?} under the same name, so both would share one budget: give each a name with \
             RateLimitLayer::builder(…).place(\"…\"), or give the limiter a policy with a name where one budget is meant"
        )));
    }
    let new = Arc::new(PlaceUse);
    *claimed = Arc::downgrade(&new);
    Ok(new)
}
