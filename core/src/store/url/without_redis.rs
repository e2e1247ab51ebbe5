//! The URLs of Redis and Valkey, in a crate without the feature `redis`: they are refused.

use std::convert::Infallible;

use crate::error::Result;
use crate::error::missing_feature;

/// The servers of a store: no value of it exists.
#[derive(Clone)]
pub(crate) struct Endpoints(pub(crate) Infallible);

pub(super) fn parse(scheme: &str, _: &str) -> Result<Option<Endpoints>> {
    if scheme == "unix" || scheme.starts_with("redis") || scheme.starts_with("valkey") {
        return Err(missing_feature::error(&format!("a store of {scheme}://"), "redis"));
    }
    Ok(None)
}
