//! The command `tidegate`, as a library: the binary, the Python wheel, the npm package and the playground of the documentation
//! run the same code.
#![cfg_attr(
    not(feature = "stores"),
    allow(
        dead_code,
        clippy::large_enum_variant,
        reason = "some of what modules have is only for the verbs that ask a store"
    )
)]

mod classes;
mod command;
#[cfg(any(feature = "demo", feature = "stores"))]
mod decision_text;
#[cfg(feature = "stores")]
mod key_options;
mod number_text;
mod outcome;
mod output;
mod policy_argument;
mod redis_cost;
#[cfg(feature = "stores")]
mod reply;
mod simulate;
#[cfg(feature = "stores")]
mod store_options;
#[cfg(feature = "stores")]
mod store_verb;
#[cfg_attr(not(feature = "stores"), path = "without_temporary_keys.rs")]
mod temporary_keys;
mod terminal;
mod time_text;
mod verbs;

use std::ffi::OsString;

use anstream::ColorChoice;
use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches};

use command::Command;
use outcome::Outcome;
use output::Output;
use tidegate::Result;
use tidegate_simulate::{invalid, unwritable};

/// Runs the command with these arguments. The first one is the name of the program. Returns the exit code: 1 for a
/// denial or a finding, 2 for an error, else 0.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let colours = terminal::colours_of(&arguments);
    colours.write_global();
    let parsed = without_empty_variables(Command::command()).try_get_matches_from(&arguments);
    let command = match parsed.and_then(|matches| Command::from_arg_matches(&matches)) {
        Ok(command) => command,
        Err(error) => return usage(&error, &arguments, colours),
    };
    let mut output = Output::new(command.json);
    let code = match command.run(&mut output) {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Negative) => 1,
        Ok(Outcome::Invalid) => 2,
        // A signal ended the work under way, which is why it failed.
        Err(_) if temporary_keys::exit_code().is_some() => 2,
        Err(failure) => {
            output.failure(&failure);
            2
        }
    };
    temporary_keys::exit_code().unwrap_or_else(|| output.end(code))
}

/// Ignores environment variables with an empty value, because shells and compose files set such ones.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty =
        |argument: &clap::Arg| argument.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    command.mut_subcommands(|verb| {
        verb.mut_args(|argument| if is_empty(&argument) { argument.env(Resettable::Reset) } else { argument })
    })
}

/// Prints the help or an error in the arguments, without the secrets of store URLs among them.
fn usage(error: &clap::Error, arguments: &[OsString], colours: ColorChoice) -> u8 {
    let is_help = !error.use_stderr();
    let text = Output::without_secrets(&error.render().ansi().to_string(), arguments);
    let json = arguments.iter().any(|argument| argument == "--json");
    let mut output = Output::new(json);
    if is_help {
        output.text(&text);
    } else {
        output.usage(&text, colours);
    }
    output.end(u8::try_from(error.exit_code()).unwrap_or(2))
}
