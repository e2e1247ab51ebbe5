//! A policy as an argument names it: a name from the policy file, a notation, or `name=notation`.

use std::path::PathBuf;

use clap::Args;
use tidegate::{Error, ErrorKind, Policy, PolicyFile, host};

use crate::{Result, invalid};

/// The name of the option for the policy file.
pub(crate) const POLICIES: &str = "policies";

#[derive(Debug, Clone, Args)]
pub(crate) struct PoliciesOption {
    /// The policy file. Its policies have names, and its store is used without --store
    #[arg(id = POLICIES, long = POLICIES, value_name = "FILE", help_heading = "Store")]
    file: Option<PathBuf>,
}

impl PoliciesOption {
    /// Reads the policy file, if one was named.
    pub(crate) fn read(&self) -> Result<Option<PolicyFile>> {
        self.file.as_ref().map(PolicyFile::read).transpose()
    }
}

/// Finds the policies of all texts, or returns all policies of the file if there is no text.
pub(crate) fn find_all(texts: &[String], file: Option<&PolicyFile>) -> Result<Vec<Policy>> {
    match file {
        Some(file) if texts.is_empty() => match file.policies() {
            [] => Err(invalid("the policy file has no policies")),
            all => Ok(all.to_vec()),
        },
        _ => texts.iter().map(|text| find(text, file)).collect(),
    }
}

/// Finds the policy of a text.
pub(crate) fn find(text: &str, file: Option<&PolicyFile>) -> Result<Policy> {
    if let Some(policy) = file.and_then(|file| file.get(text)) {
        return Ok(policy.clone());
    }
    if let Some((name, notation)) = text.split_once('=').filter(|(name, _)| is_name(name)) {
        let policy = find(notation, file)?;
        return policy.named(name.trim());
    }
    Policy::parse(text).map_err(|error| explained(text, file, error))
}

/// True if a text before `=` is a name, and no part of a URL.
fn is_name(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().all(|c| c.is_alphanumeric() || " -_.:/".contains(c))
        && !text.contains("://")
}

/// The error for a text that is neither. A text with digits may be a misspelt name or a wrong notation.
fn explained(text: &str, file: Option<&PolicyFile>, error: Error) -> Error {
    let names: Vec<&str> = file.map_or_else(Vec::new, |file| file.policies().iter().map(Policy::name).collect());
    let near = host::did_you_mean(text, names.iter().copied());
    let is_url = text.contains("://") || text.contains('@');
    if is_url || (text.bytes().any(|byte| byte.is_ascii_digit()) && near.is_empty()) {
        return error;
    }
    let shown: String = text.chars().take(80).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let known = match (file, quoted.is_empty()) {
        (None, _) => "no policy file was given: name it with --policies FILE".to_owned(),
        (Some(_), true) => "the policy file has no policies".to_owned(),
        (Some(_), false) => format!("the policy file has {}", quoted.join(", ")),
    };
    let message = format!("{shown:?} is neither a known policy ({known}) nor a notation such as \"20/minute\"{near}");
    Error::new(ErrorKind::PolicyUnknown, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::policy::Format;

    #[test]
    fn a_name_a_notation_and_neither() {
        let text = "policies: {login: 20/minute, api-v2: 5/s}";
        let file = PolicyFile::parse(text, Format::Yaml, None).expect("a policy file");
        assert_eq!(find("login", Some(&file)).expect("a name").name(), "login");
        assert_eq!(find("20/minute; 5/3s", Some(&file)).expect("a notation").limits().len(), 2);
        let twice = find("plan=600/minute", Some(&file)).expect("a name and a notation");
        assert_eq!((twice.name(), twice.limits()[0].count()), ("plan", 600));
        // The limits of a policy can count under another name.
        assert_eq!(find("x=login", Some(&file)).expect("a name").limits()[0].count(), 20);
        let failed = |text: &str| find(text, Some(&file)).expect_err(text);
        for (text, code, said) in [
            ("lgoin", "policy_unknown", "did you mean `login`?"),
            ("api-v3", "policy_unknown", "did you mean `api-v2`?"),
            ("search", "policy_unknown", "\"login\", \"api-v2\""),
            ("20/minuet", "policy_invalid", "did you mean `minute`?"),
        ] {
            let failure = failed(text);
            assert_eq!(failure.code(), code, "{failure}");
            assert!(failure.message().contains(said), "{failure}");
        }
        assert!(!failed("redis://u:hunter2@h").message().contains("hunter2"));
        assert!(find("login", None).expect_err("no file").message().contains("--policies"));
    }
}
