//! `tidegate completions`: the script that a shell needs to complete the command.

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::{Outcome, Output, Result};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ tidegate completions bash > tidegate.bash
  $ tidegate completions zsh > _tidegate
  $ tidegate completions fish > tidegate.fish

Put tidegate.bash into ~/.local/share/bash-completion/completions, _tidegate into a folder of zsh's fpath, or
tidegate.fish into ~/.config/fish/completions.")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    #[expect(clippy::unnecessary_wraps, reason = "verbs have one signature")]
    pub(crate) fn run(&self, command: &mut Command, output: &mut Output) -> Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "tidegate", &mut script);
        let script = String::from_utf8_lossy(&script);
        if output.is_json() {
            output.json(&json!({"shell": self.shell.to_string(), "script": script}));
        } else {
            output.text(&script);
        }
        Ok(Outcome::Done)
    }
}
