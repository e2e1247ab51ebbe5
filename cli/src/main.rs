//! The command `tidegate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tidegate_cli::run(std::env::args_os()))
}
