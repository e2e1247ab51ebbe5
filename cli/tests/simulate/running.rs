//! Runs `simulate` in `traces/`, so that a trace is named by its file name.

use std::process::Command;

pub(crate) use crate::support::{Ran, Scratch, folder, golden, ran};

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = crate::support::command(&[&["simulate"][..], arguments].concat());
    command.current_dir(folder("simulate/traces"));
    command
}

/// A run that has to succeed.
#[track_caller]
pub(crate) fn done(arguments: &[&str]) -> Ran {
    let ran = ran(&mut command(arguments));
    assert_eq!((ran.code, ran.error.as_str()), (0, ""), "{arguments:?}");
    ran
}
