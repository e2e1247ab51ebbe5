//! The policy file: one file of policies for services in any language.

mod environment;
mod json;
mod limit;
mod ruler;
mod schema;
mod toml;
mod tree;
mod yaml;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use self::environment::Lookup;
use self::ruler::Ruler;
use super::Policy;
use crate::error::{Error, Result, SourceLocation};

/// The largest policy file, in bytes: a guard against reading something else by mistake.
const LARGEST: usize = 8 << 20;

/// How a policy file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// YAML 1.2; `.yaml` or `.yml`.
    Yaml,
    /// TOML 1.0; `.toml`.
    Toml,
    /// JSON; `.json`.
    Json,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Yaml, Self::Toml, Self::Json];

    /// The format that a file's extension stands for.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The name as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Toml => "TOML",
            Self::Json => "JSON",
        }
    }
}

/// A policy file that was read as a whole: every policy in it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    store: Option<Vec<String>>,
    policies: Vec<Policy>,
    /// Where each policy stands, in the order of `policies`.
    places: Vec<PolicyPlaces>,
}

/// Where a policy and its limits stand.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PolicyPlaces {
    policy: SourceLocation,
    limits: Vec<SourceLocation>,
}

impl PolicyFile {
    /// Reads the file at a path; its extension says the format.
    ///
    /// # Errors
    /// `policy_invalid` when it cannot be read, or with file, line and column of what is wrong in it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let format = Format::of(path).ok_or_else(|| {
            Error::policy(format!("{name}: a policy file's name ends in .yaml, .yml, .toml or .json"))
        })?;
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST as u64 + 1).read_to_end(&mut bytes))
            .map_err(|error| Error::policy(format!("{name}: the policy file cannot be read: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
            let spot = Ruler::new(&valid).spot(valid.len());
            tree::Fault::new(spot, "a policy file is UTF-8, and these bytes are not").error(Some(&name))
        })?;
        Self::parse(&text, format, Some(&name))
    }

    /// Reads a text; the name of its file is for errors.
    ///
    /// # Errors
    /// `policy_invalid` with line and column of what is wrong.
    pub fn parse(text: &str, format: Format, file_name: Option<&str>) -> Result<Self> {
        Self::parse_with(text, format, file_name, &|name| std::env::var(name).ok())
    }

    /// [`PolicyFile::parse`] with an environment of the caller's.
    ///
    /// # Errors
    /// `policy_invalid` with line and column of what is wrong.
    pub fn parse_with(text: &str, format: Format, file_name: Option<&str>, environment: Lookup<'_>) -> Result<Self> {
        // Some editors begin a file with a byte order mark; the columns of an error do not count it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > LARGEST {
            let name = file_name.map_or_else(String::new, |name| format!("{name}: "));
            return Err(Error::policy(format!("{name}the policy file is larger than {} MiB", LARGEST >> 20)));
        }
        let ruler = Ruler::new(text);
        let tree = match format {
            Format::Yaml => yaml::tree(&ruler),
            Format::Toml => toml::tree(&ruler),
            Format::Json => json::tree(&ruler),
        };
        tree.and_then(|mut tree| {
            environment::expand(&mut tree, environment)?;
            schema::policy_file(&tree, format)
        })
        .map(|read| read.placed(file_name))
        .map_err(|fault| fault.error(file_name))
    }

    /// The store's URL, or the URLs of its shards, when the file names a store.
    #[must_use]
    pub fn store(&self) -> Option<&[String]> {
        self.store.as_deref()
    }

    /// The policies, named, in the order of the file.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The policy of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name() == name)
    }

    /// Where the policy of that name begins.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<&SourceLocation> {
        self.policies.iter().position(|policy| policy.name() == name).and_then(|index| self.policy_place(index))
    }

    pub(super) fn policy_place(&self, policy: usize) -> Option<&SourceLocation> {
        self.places.get(policy).map(|places| &places.policy)
    }

    pub(super) fn limit_place(&self, policy: usize, limit: usize) -> Option<&SourceLocation> {
        self.places.get(policy).and_then(|places| places.limits.get(limit))
    }
}

#[cfg(test)]
mod tests;
