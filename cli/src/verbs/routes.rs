//! `tidegate routes`: the limits of each route of a web application of Python. The command of the Python package does this itself,
//! because it has to import the application. Any other command tells how to get that one.

use clap::Args;

use crate::{Outcome, Output, Result, invalid};

#[derive(Debug, Args)]
#[command(
    after_help = "It imports the application, so it is part of the Python package: run pip install tidegate in the environment of the
application, and there python -m tidegate routes MODULE:APP.

Examples:
  $ tidegate routes app:app
  $ tidegate routes \"shop:create_app()\" --json"
)]
pub(crate) struct Routes {
    /// A module and the name of an application in it, or of a function that makes one: app:app, shop:create_app()
    #[arg(value_name = "MODULE:APP")]
    app: String,
}

impl Routes {
    pub(crate) fn run(&self, _: &mut Output) -> Result<Outcome> {
        Err(invalid(format!(
            "routes imports the application, which only the command of the Python package can do: run `pip install tidegate` in the \
             environment of the application, then `python -m tidegate routes {}`",
            self.app.escape_debug()
        )))
    }
}
