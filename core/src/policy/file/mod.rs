//! The policy file: one file of policies for services in any language.

mod environment;
mod file_policy;
mod json;
mod limit;
mod line_index;
mod older_shape;
mod option_value;
mod scalar;
mod schema;
mod stores;
mod toml;
mod tree;
mod yaml;

use std::fmt;
use std::path::Path;

use self::environment::EnvironmentLookup;
use self::file_policy::FilePolicy;
use self::line_index::LineIndex;
use self::stores::FileStore;
use super::{Format, Policy};
use crate::algorithm::SECOND;
use crate::error::{Error, ErrorKind, Result, SourceLocation, visible};
use crate::process::regular_file::{self, Links, Unreadable};

/// The largest policy file, in bytes. It guards against reading another file by mistake.
const MAX_FILE_SIZE: usize = 8 << 20;

/// A complete policy file. Every policy in it is valid.
#[cfg_attr(docsrs, doc(cfg(feature = "files")))]
#[derive(Clone, PartialEq)]
pub struct PolicyFile {
    store: Option<FileStore>,
    prefix: Option<String>,
    policies: Vec<Policy>,
    /// The positions of the policies, in the order of `policies`.
    locations: Vec<PolicyLocations>,
    format: Format,
}

/// Does not show the stores, because their URLs may have passwords.
impl fmt::Debug for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyFile").field("policies", &self.policies).finish_non_exhaustive()
    }
}

/// The positions of a policy and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PolicyLocations {
    policy: SourceLocation,
    limits: Vec<SourceLocation>,
    /// True if it has the shape of older files.
    older: bool,
}

impl PolicyFile {
    /// Reads the file at a path. Its extension sets the format.
    ///
    /// # Errors
    /// `policy_invalid` when it cannot be read, or with file, line and column of an error in it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let name = visible(&name).into_owned();
        if name.contains("://") {
            // The path is not shown, because it may have a password.
            return Err(Error::policy("a policy file has a path, and this is a URL: give the path of the file"));
        }
        let format = Format::of(path).ok_or_else(|| {
            Error::policy(format!("{name}: a policy file's name ends in .yaml, .yml, .toml or .json"))
        })?;
        let unreadable = |why: Unreadable| why.as_error(ErrorKind::PolicyInvalid, &format!("{name}: the policy file"));
        let bytes = regular_file::read(path, MAX_FILE_SIZE, Links::Followed).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
            let position = LineIndex::new(&valid).position(valid.len());
            tree::FileError::new(position, "these bytes are not UTF-8: save the file as UTF-8").into_error(Some(&name))
        })?;
        Self::parse(&text, format, Some(&name))
    }

    /// Reads a text. Errors show the name of its file.
    ///
    /// # Errors
    /// `policy_invalid` with line and column of the error.
    pub fn parse(text: &str, format: Format, file_name: Option<&str>) -> Result<Self> {
        Self::parse_with(text, format, file_name, &|name| std::env::var(name).ok())
    }

    /// [`PolicyFile::parse`] with an environment that the caller passes.
    ///
    /// # Errors
    /// `policy_invalid` with line and column of the error.
    pub fn parse_with(
        text: &str,
        format: Format,
        file_name: Option<&str>,
        environment: EnvironmentLookup<'_>,
    ) -> Result<Self> {
        // Some editors begin a file with a byte order mark. The columns of an error do not count it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > MAX_FILE_SIZE {
            let name = file_name.map_or_else(String::new, |name| format!("{name}: "));
            return Err(Error::policy(format!("{name}the policy file is larger than {} MiB", MAX_FILE_SIZE >> 20)));
        }
        let lines = LineIndex::new(text);
        let tree = match format {
            Format::Yaml => yaml::tree(&lines),
            Format::Toml => toml::tree(&lines),
            Format::Json => json::tree(&lines),
        };
        tree.and_then(|mut tree| {
            environment::expand(&mut tree, environment)?;
            schema::policy_file(&tree, format)
        })
        .map(|schema::Contents { store, prefix, policies: found }| {
            let located = |found: FilePolicy| {
                let limits = found.limits.into_iter().map(|position| position.in_file(file_name)).collect();
                let policy = found.position.in_file(file_name);
                (found.policy, PolicyLocations { policy, limits, older: found.older })
            };
            let (policies, locations) = found.into_iter().map(located).unzip();
            Self { store, prefix, policies, locations, format }
        })
        .map_err(|error| tree::FileError { position: lines.within(error.position), ..error }.into_error(file_name))
    }

    /// The store's URL, or the URLs of its shards, if the file names a store. For a rollout the old URL.
    #[must_use]
    pub fn store(&self) -> Option<&[String]> {
        self.store.as_ref().map(|store| &*store.urls)
    }

    /// The new URL of a rollout and the percentage of the keys that use it, if the file describes one.
    #[must_use]
    pub fn rollout(&self) -> Option<(&str, f64)> {
        let (new, percent) = self.store.as_ref()?.rollout.as_ref()?;
        Some((new, *percent))
    }

    /// The beginning of every key in Redis, if the file sets it.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
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

    /// The position of the policy of that name.
    #[must_use]
    pub fn location(&self, name: &str) -> Option<&SourceLocation> {
        self.policies.iter().position(|policy| policy.name() == name).and_then(|index| self.policy_location(index))
    }

    pub(super) fn policy_location(&self, policy: usize) -> Option<&SourceLocation> {
        self.locations.get(policy).map(|locations| &locations.policy)
    }

    /// The notation of today for a policy in the shape of older files.
    pub(super) fn new_form(&self, policy: usize) -> Option<String> {
        let policy = self.locations.get(policy).filter(|location| location.older).map(|_| &self.policies[policy])?;
        let (name, notation) = (policy.name(), policy.to_string());
        let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        let is = if self.format == Format::Toml { " =" } else { ":" };
        // YAML and TOML can read the quotes of JSON as well.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        if Policy::parse(&notation).is_ok_and(|read| read.limits() == policy.limits()) {
            return Some(match self.format {
                Format::Yaml if is_plain => format!("{name}: {notation}"),
                _ => format!("{}{is} {}", quoted(name), quoted(&notation)),
            });
        }
        // The notation has no unit for such a period.
        let limits = policy.limits().iter().map(|limit| {
            let seconds = limit.period().micros() as f64 / SECOND as f64;
            format!("{{{}{is} {}, {}{is} {seconds}}}", quoted("limit"), limit.count(), quoted("period"))
        });
        Some(format!("{}{is} [{}]", quoted(name), limits.collect::<Vec<_>>().join(", ")))
    }

    pub(super) fn limit_location(&self, policy: usize, limit: usize) -> Option<&SourceLocation> {
        self.locations.get(policy).and_then(|locations| locations.limits.get(limit))
    }
}

#[cfg(test)]
mod tests;
