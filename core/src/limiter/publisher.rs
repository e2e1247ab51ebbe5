//! Publishes what `tidegate top` shows of this process, where the environment variable `TIDEGATE_TOP` names a folder: once a
//! second a file with the counts of each policy, and the keys that were denied last.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use serde_json::{Map, json};

use super::LimiterCore;
use crate::fork;
use crate::log::WarningKind;
use crate::stats::DeniedKeys;

/// The environment variable.
const VARIABLE: &str = "TIDEGATE_TOP";
/// How often a file is written.
const INTERVAL: Duration = Duration::from_secs(1);
/// A file that was not written for so long is of a process that was killed, and goes.
const ABANDONED: Duration = Duration::from_secs(60);
/// What the names of the files begin and end with.
const BEGIN: &str = "tidegate-";
const END: &str = ".json";

/// Begins to publish, where the environment asks for it.
pub(super) fn begin(core: &Arc<LimiterCore>) {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from) else {
        return;
    };
    let weak = Arc::downgrade(core);
    // The generation of the process that has a thread, and one more.
    let running = AtomicU64::new(0);
    let start = Arc::new(move || {
        let current = fork::generation() + 1;
        if running.swap(current, Ordering::Relaxed) != current {
            start(&weak, &folder);
        }
    });
    start();
    let _ = core.decisions.denied_keys.set(DeniedKeys::new(start));
}

fn start(core: &Weak<LimiterCore>, folder: &Path) {
    let Some(strong) = core.upgrade() else { return };
    let publisher = Publisher { core: Weak::clone(core), file: folder.join(file_name(&strong)) };
    remove_abandoned(folder);
    publisher.publish(&strong);
    let thread = std::thread::Builder::new().name("tidegate-top".to_owned());
    if let Err(error) = thread.spawn(move || publisher.run()) {
        warn(&strong, folder, &error);
    }
}

fn warn(core: &LimiterCore, path: &Path, error: &io::Error) {
    core.log.warn_once(WarningKind::Unpublished, || {
        format!(
            "{VARIABLE} is set, and {} cannot be written ({error}): `tidegate top` does not see this process; name a folder \
             that it may write to",
            path.display()
        )
    });
}

fn file_name(core: &LimiterCore) -> String {
    format!("{BEGIN}{}-{}{END}", std::process::id(), core.decisions.limiter())
}

/// Removes the files of processes that were killed.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(BEGIN) && name.ends_with(END));
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
        if ours && age.is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

struct Publisher {
    core: Weak<LimiterCore>,
    file: PathBuf,
}

impl Publisher {
    /// Ends with the limiter.
    fn run(self) {
        while let Some(core) = self.core.upgrade().filter(|core| core.open().is_ok()) {
            self.publish(&core);
            drop(core);
            std::thread::sleep(INTERVAL);
        }
        let _ = fs::remove_file(&self.file);
    }

    fn publish(&self, core: &LimiterCore) {
        if let Err(error) = self.write(&core.published()) {
            warn(core, &self.file, &error);
        }
    }

    /// Readers see the old file or the new one. Only the user of this process may read it: it has keys.
    fn write(&self, text: &str) -> io::Result<()> {
        let unfinished = self.file.with_extension("tmp");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&unfinished)?.write_all(text.as_bytes())?;
        fs::rename(unfinished, &self.file)
    }
}

impl LimiterCore {
    fn published(&self) -> String {
        let mut notations = Map::new();
        self.policies.each(|plan| {
            notations.insert(plan.policy.name().to_owned(), plan.policy.to_string().into());
        });
        let policies: Map<_, _> = self
            .decisions
            .read()
            .into_iter()
            .map(|(name, stats)| {
                let counts = json!({
                    "notation": notations.get(&name),
                    "allowed": stats.allowed,
                    "denied": stats.denied + stats.unavailable,
                });
                (name, counts)
            })
            .collect();
        let table = self.decisions.denied_keys.get().map(DeniedKeys::read).unwrap_or_default();
        let of_long_keys = table.of_long_keys;
        let denied = table.newest_first().into_iter().map(
            |denied| json!({"policy": denied.policy.as_str(), "key": denied.key.as_str(), "denials": denied.denials}),
        );
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let program = std::env::args_os().next().map(PathBuf::from);
        let program = program.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        json!({
            "version": 1,
            "process": std::process::id(),
            "program": program,
            "written": since_1970.as_secs_f64(),
            "store": self.shown,
            "prefix": self.prefix,
            "policies": policies,
            "denied": denied.collect::<Vec<_>>(),
            "denials_of_long_keys": of_long_keys,
        })
        .to_string()
    }
}
