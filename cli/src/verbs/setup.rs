//! Makes the table that a store needs.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tidegate::host;

use crate::{Outcome, Output, Result, time_text};

#[derive(Debug, Args)]
#[command(
    after_help = "The user needs the right to make a table in the schema. You can run it again: it does not change an \
        existing table.

Examples:
  $ tidegate setup \"postgresql://app@db.internal/app\"
  $ tidegate setup \"postgresql://app@db.internal/app?table=limits.tidegate\" --print"
)]
pub(crate) struct Setup {
    /// The store: postgresql://user:password@host:5432/database?table=tidegate
    #[arg(value_name = "URL", env = "TIDEGATE_STORE", hide_env_values = true)]
    url: String,

    /// Print the statements instead of running them
    #[arg(long)]
    print: bool,

    /// The longest wait for the store, such as 250ms or 2s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_text::parse)]
    timeout: Duration,
}

impl Setup {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        if self.print {
            let statements = host::postgres_ddl(&self.url)?;
            match output.is_json() {
                true => output.json(&json!({"statements": statements})),
                false => output.line(statements),
            }
            return Ok(Outcome::Done);
        }
        let table = host::set_up_postgres(&self.url, self.timeout)?;
        match output.is_json() {
            true => output.json(&json!({"table": table, "store": host::without_secrets(&self.url)})),
            false => output.line(format!("the table {table} is ready in {}", host::without_secrets(&self.url))),
        }
        Ok(Outcome::Done)
    }
}
