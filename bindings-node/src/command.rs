//! The command `tidegate`, for the program of the npm package.

use napi_derive::napi;

/// Runs the command with these arguments, which begin with its name. Returns the exit code.
#[napi(catch_unwind)]
pub fn run_command(arguments: Vec<String>) -> u32 {
    tidegate_cli::run(arguments.into_iter().map(Into::into)).into()
}
