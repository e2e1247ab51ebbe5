//! The files that processes of this machine publish, in the folder that their `TIDEGATE_TOP` names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tidegate::Policy;
use tidegate::host::{self, Links, Unreadable};
use tidegate_simulate::text::path_text;

use crate::{Result, invalid};

/// The seconds after which a process without a newer file has ended, or hangs.
const FRESH: f64 = 5.0;
/// The most files that are read, and the most bytes of each.
const MAX_FILES: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;

/// The calls per second that were allowed and denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    #[serde(rename = "allowed_per_second")]
    pub(super) allowed: f64,
    #[serde(rename = "denied_per_second")]
    pub(super) denied: f64,
    /// Calls that policies in shadow mode would have denied. They were allowed.
    #[serde(rename = "shadow_denied_per_second")]
    pub(super) shadow_denied: f64,
}

/// The calls of a policy, by its name.
#[derive(Serialize)]
pub(super) struct PolicyRates {
    pub(super) policy: String,
    #[serde(flatten)]
    pub(super) rates: Rates,
}

/// A key that a process named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct NamedKey {
    pub(super) policy: String,
    pub(super) key: String,
}

/// One reading of a file, as `core/src/limiter/publisher.rs` writes it.
#[derive(Debug, Default, Deserialize)]
struct Snapshot {
    version: u64,
    written: f64,
    program: Option<String>,
    #[serde(default)]
    store: String,
    #[serde(default)]
    prefix: String,
    policies: BTreeMap<String, Counts>,
    denied: Vec<Denials>,
}

/// The counts of a policy since its process started.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Counts {
    notation: Option<String>,
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
}

#[derive(Debug, Deserialize)]
struct Denials {
    #[serde(flatten)]
    named: NamedKey,
    denials: u64,
}

/// A file, and the rates between its last two versions.
#[derive(Debug, Default)]
struct ProcessFile {
    last: Snapshot,
    policies: BTreeMap<String, Rates>,
    denied: BTreeMap<NamedKey, f64>,
}

/// Reads the files that processes publish.
#[derive(Debug)]
pub(super) struct Published {
    folder: PathBuf,
    files: BTreeMap<PathBuf, ProcessFile>,
    /// Files that could not be used in the last reading.
    pub(super) unreadable: usize,
}

impl Published {
    pub(super) fn of(folder: &Path) -> Result<Self> {
        let mut published = Self { folder: folder.to_owned(), files: BTreeMap::new(), unreadable: 0 };
        published.read()?;
        Ok(published)
    }

    /// Reads the files again.
    pub(super) fn read(&mut self) -> Result<()> {
        let folder = &self.folder;
        let entries = fs::read_dir(folder).map_err(|error| {
            invalid(format!(
                "the folder {} of --names or TIDEGATE_TOP cannot be read ({error}): name the folder that is in TIDEGATE_TOP of \
                 the processes",
                path_text(folder)
            ))
        })?;
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("tidegate-") && Path::new(name).extension().is_some_and(|end| end == "json")
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_ours).collect();
        paths.sort_unstable();
        self.unreadable = paths.len().saturating_sub(MAX_FILES);
        paths.truncate(MAX_FILES);
        self.files.retain(|path, _| paths.contains(path));
        for path in paths {
            let text = match read_file(&path) {
                // A file that was just removed is no fault.
                Err(Unreadable::Failed(error)) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.ok(),
            };
            match text.and_then(|text| snapshot(&text)) {
                Some(snapshot) => self.files.entry(path).or_default().take(snapshot),
                None => self.unreadable += 1,
            }
        }
        Ok(())
    }

    fn fresh(&self) -> impl Iterator<Item = &ProcessFile> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.files.values().filter(move |file| (now - file.last.written).abs() < FRESH)
    }

    /// The number of processes that published in the last seconds, and of those that did not.
    pub(super) fn counts(&self) -> (usize, usize) {
        let fresh = self.fresh().count();
        (fresh, self.files.len() - fresh)
    }

    /// The names of their programs.
    pub(super) fn programs(&self) -> Vec<&str> {
        let mut programs: Vec<&str> =
            self.fresh().map(|file| file.last.program.as_deref().unwrap_or_default()).collect();
        programs.sort_unstable();
        programs.dedup();
        programs
    }

    /// The policies that have a name.
    pub(super) fn policies(&self) -> Vec<Policy> {
        let counts = self.fresh().flat_map(|file| &file.last.policies);
        let notations: BTreeMap<&str, &str> =
            counts.filter_map(|(name, counts)| Some((name.as_str(), counts.notation.as_deref()?))).collect();
        notations.iter().filter_map(|(name, notation)| Policy::parse(notation).ok()?.named(*name).ok()).collect()
    }

    /// Calls per second by policy, of all processes together. Policies with the most denials come first.
    pub(super) fn rates(&self) -> Vec<PolicyRates> {
        let mut rates: BTreeMap<&str, Rates> = BTreeMap::new();
        for file in self.fresh() {
            for policy in file.last.policies.keys() {
                let of_file = file.policies.get(policy).copied().unwrap_or_default();
                let sum = rates.entry(policy).or_default();
                sum.allowed += of_file.allowed;
                sum.denied += of_file.denied;
                sum.shadow_denied += of_file.shadow_denied;
            }
        }
        let rates = rates.into_iter().map(|(policy, rates)| PolicyRates { policy: policy.to_owned(), rates });
        let mut rates: Vec<PolicyRates> = rates.collect();
        rates.sort_by(|PolicyRates { rates: x, .. }, PolicyRates { rates: y, .. }| {
            y.denied.total_cmp(&x.denied).then(y.allowed.total_cmp(&x.allowed))
        });
        rates
    }

    /// The keys that were denied since the last reading, with their denials per second. `of` is the store and the
    /// prefix of the processes that count. Without it, all processes do.
    pub(super) fn denied(&self, of: Option<(&str, &str)>) -> BTreeMap<NamedKey, f64> {
        let mut denied: BTreeMap<NamedKey, f64> = BTreeMap::new();
        for file in self.fresh() {
            if of.is_some_and(|(store, prefix)| (store, prefix) != (&*file.last.store, &*file.last.prefix)) {
                continue;
            }
            for (key, rate) in &file.denied {
                *denied.entry(key.clone()).or_default() += rate;
            }
        }
        denied
    }

    /// Every key that is known by name, with the prefix of its process.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &NamedKey)> {
        self.fresh().flat_map(|file| file.last.denied.iter().map(|denied| (&*file.last.prefix, &denied.named)))
    }
}

/// Reads the file of a process. A file that another user put there must not stop the command.
fn read_file(path: &Path) -> Result<Vec<u8>, Unreadable> {
    host::read_regular_file(path, MAX_BYTES, Links::Refused)
}

impl ProcessFile {
    fn take(&mut self, snapshot: Snapshot) {
        let elapsed = snapshot.written - self.last.written;
        if elapsed <= 0.0 {
            return;
        }
        if self.last.written > 0.0 {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed;
            let of = |(name, counts): (&String, &Counts)| {
                let before = self.last.policies.get(name).cloned().unwrap_or_default();
                let rates = Rates {
                    allowed: rate(counts.allowed, before.allowed),
                    denied: rate(counts.denied, before.denied),
                    shadow_denied: rate(counts.shadow_denied, before.shadow_denied),
                };
                (name.clone(), rates)
            };
            self.policies = snapshot.policies.iter().map(of).collect();
            let before: BTreeMap<&NamedKey, u64> =
                self.last.denied.iter().map(|denied| (&denied.named, denied.denials)).collect();
            let of = |Denials { named, denials }: &Denials| {
                let rate = rate(*denials, before.get(named).copied().unwrap_or_default());
                (rate > 0.0).then(|| (named.clone(), rate))
            };
            self.denied = snapshot.denied.iter().filter_map(of).collect();
        }
        self.last = snapshot;
    }
}

/// `None` for a file of another version.
fn snapshot(text: &[u8]) -> Option<Snapshot> {
    serde_json::from_slice(text).ok().filter(|snapshot: &Snapshot| snapshot.version == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: f64, allowed: u64, denials: u64) -> Snapshot {
        let text = format!(
            r#"{{"version":1,"written":{written},"program":"app","store":"memory://","prefix":"tg",
                "policies":{{"login":{{"notation":"5/minute","allowed":{allowed},"denied":{denials}}}}},
                "denied":[{{"policy":"login","key":"alice","denials":{denials}}}]}}"#
        );
        snapshot(text.as_bytes()).expect("a snapshot")
    }

    #[test]
    fn rates_are_those_between_two_versions_of_a_file() {
        let mut file = ProcessFile::default();
        file.take(read(100.0, 10, 2));
        assert!(file.policies.is_empty() && file.denied.is_empty(), "one version has no rate");
        file.take(read(102.0, 30, 7));
        assert_eq!(file.policies["login"], Rates { allowed: 10.0, denied: 2.5, shadow_denied: 0.0 });
        assert_eq!(file.denied.values().copied().collect::<Vec<_>>(), [2.5]);
        file.take(read(102.0, 30, 7));
        assert_eq!(file.policies["login"].allowed, 10.0, "the same version again changes nothing");
        file.take(read(103.0, 30, 7));
        assert!(file.denied.is_empty(), "nothing was denied since");
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_read_and_only_so_much_of_them() {
        let folder = std::env::temp_dir().join(format!("tidegate-top-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = |name: &str| folder.join(format!("tidegate-{name}.json"));
        std::os::unix::fs::symlink("/dev/zero", file("link")).expect("a link");
        assert!(std::process::Command::new("mkfifo").arg(file("pipe")).status().is_ok_and(|status| status.success()));
        fs::write(file("long"), vec![b' '; MAX_BYTES + 1]).expect("a long file");
        fs::write(file("right"), "{}").expect("a file");
        for name in ["link", "pipe", "long"] {
            assert!(read_file(&file(name)).is_err(), "{name}");
        }
        assert_eq!(read_file(&file("right")).expect("its text"), b"{}");
        assert_eq!(Published::of(&folder).expect("a folder").unreadable, 4);
        fs::remove_dir_all(folder).expect("the folder goes");
    }

    #[test]
    fn a_file_of_another_version_is_not_read() {
        for text in [&br#"{"version":2}"#[..], b"", b"[]", br#"{"version":1,"written":"x"}"#] {
            assert!(snapshot(text).is_none());
        }
    }
}
