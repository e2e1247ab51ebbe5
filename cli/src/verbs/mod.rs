//! The verbs, a file or a folder each. Those that work on one key by hand share `key.rs`.

#[cfg(feature = "stores")]
pub(crate) mod bench;
#[cfg(feature = "stores")]
pub(crate) mod completions;
#[cfg(feature = "demo")]
pub(crate) mod demo;
#[cfg(feature = "stores")]
pub(crate) mod doctor;
pub(crate) mod explain;
#[cfg(feature = "stores")]
pub(crate) mod inspect;
#[cfg(feature = "stores")]
pub(crate) mod journal;
#[cfg(feature = "stores")]
pub(crate) mod key;
pub(crate) mod lint;
#[cfg(feature = "stores")]
pub(crate) mod overrides;
#[cfg(feature = "stores")]
pub(crate) mod routes;
#[cfg(feature = "stores")]
pub(crate) mod setup;
#[cfg(feature = "stores")]
pub(crate) mod size;
#[cfg(feature = "stores")]
pub(crate) mod top;
