//! The verbs, a file or a folder each. Those that work on one key by hand share `key.rs`.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod lint;
pub(crate) mod overrides;
pub(crate) mod size;
pub(crate) mod top;
