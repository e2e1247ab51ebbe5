//! The formats of policy files.

use std::path::Path;

/// The format of a policy file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// YAML 1.2, with the extension `.yaml` or `.yml`.
    Yaml,
    /// TOML 1.0, with the extension `.toml`.
    Toml,
    /// JSON, with the extension `.json`.
    Json,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Yaml, Self::Toml, Self::Json];

    /// The format that belongs to a file's extension.
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
