//! The policy file that a limiter was made from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result, named};
use crate::policy::prefix::DEFAULT_PREFIX;
use crate::policy::{Policy, PolicyFile, quoted};
use crate::store::url::without_secrets;

/// The path of a policy file, and its first content.
#[derive(Debug, Clone)]
pub(super) struct PolicySource {
    path: PathBuf,
    /// The file as it was first read.
    first: Arc<PolicyFile>,
    /// The digest of its content, or of an older one.
    first_digest: u64,
}

impl PolicySource {
    pub(super) fn read(path: &Path) -> Result<Self> {
        // Before the file is read, so that a change in between is noticed.
        let first_digest = PolicyFile::digest(path);
        Ok(Self { path: path.to_owned(), first: Arc::new(PolicyFile::read(path)?), first_digest })
    }

    pub(super) const fn first_digest(&self) -> u64 {
        self.first_digest
    }

    /// A number for the content of the file, or for the reason why it cannot be read.
    pub(super) fn digest(&self) -> u64 {
        PolicyFile::digest(&self.path)
    }

    pub(super) fn first(&self) -> &PolicyFile {
        &self.first
    }

    /// Reads the file anew.
    ///
    /// # Errors
    /// `policy_invalid` for a mistake in it, `config_invalid` if it names another store or prefix and the limiter uses
    /// that of the file.
    pub(super) fn reread(&self, uses_its_store: bool, prefix: &str) -> Result<PolicyFile> {
        let file = PolicyFile::read(&self.path)?;
        if uses_its_store && (stores(&file), file.rollout()) != (stores(&self.first), self.first.rollout()) {
            let [before, now] = [&self.first, &file].map(shown);
            let change = if before == now { "its details".to_owned() } else { format!("{before} to {now}") };
            return Err(self.refusal(&format!(
                "the store has changed ({change}), which a reload cannot do. Restart the service, or restore `store`; \
                 {} changes the percentage of a rollout",
                named("set_rollout")
            )));
        }
        let [before, now] = [&self.first, &file].map(|file| file.prefix().unwrap_or(DEFAULT_PREFIX));
        if prefix == before && now != before {
            return Err(self.refusal(&format!(
                "the prefix has changed ({} to {}), which a reload cannot do: all usage would begin anew. Restart \
                 the service, or restore `prefix`",
                quoted(before),
                quoted(now)
            )));
        }
        Ok(file)
    }

    /// The error for a file that cannot be taken.
    pub(super) fn refusal(&self, reason: &str) -> Error {
        Error::config(format!(
            "{}: {reason}; nothing was reloaded",
            crate::error::visible(&self.path.display().to_string())
        ))
    }

    /// Fails if a policy of the file has the name of a policy that was given in code.
    pub(super) fn refuse_in_code(&self, file: &PolicyFile, in_code: &[Policy]) -> Result<()> {
        let pairs = file.policies().iter().flat_map(|policy| in_code.iter().map(move |other| (policy, other)));
        let clash = |(policy, other): (&Policy, &Policy)| Some((policy.name().to_owned(), policy.clash(other)?));
        let Some((name, clash)) = pairs.into_iter().find_map(clash) else { return Ok(()) };
        let error = Error::policy(format!("{clash}, of which one was given in code: give one of them another name"));
        Err(match file.location(&name) {
            Some(location) => error.at(location.clone()),
            None => error,
        })
    }
}

/// The stores that a file names, or the default.
fn stores(file: &PolicyFile) -> Vec<&str> {
    file.store().map_or_else(|| vec!["memory://"], |urls| urls.iter().map(String::as_str).collect())
}

fn shown(file: &PolicyFile) -> String {
    stores(file).into_iter().map(without_secrets).collect::<Vec<_>>().join(", ")
}
