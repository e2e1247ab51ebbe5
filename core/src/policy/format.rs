//! The formats of policy files.

use std::path::Path;

/// How a policy file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
