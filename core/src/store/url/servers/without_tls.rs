//! Certificates, in a crate without the feature `tls`: a URL that encrypts is refused.

use std::convert::Infallible;

use crate::error::Result;
use crate::error::missing_feature;

/// The contents of certificate files: no value of it exists.
#[derive(Clone)]
pub(crate) struct Certificates(pub(crate) Infallible);

pub(super) fn read(_: [Option<String>; 4]) -> Result<Certificates> {
    Err(missing_feature::error("a store of rediss:// or valkeys://, whose connections are encrypted,", "tls"))
}
