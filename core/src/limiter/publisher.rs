//! Publishes the data of this process for `tidegate top`, if the environment variable `TIDEGATE_TOP` names a folder.
//! Once a second it writes a file with the counts of each policy, and the keys that were denied last.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use serde_json::{Map, json};

use super::LimiterCore;
use crate::counting::DeniedKeys;
use crate::error::visible;
use crate::process::fork;
use crate::process::log::WarningKind;

/// The environment variable.
const VARIABLE: &str = "TIDEGATE_TOP";
/// The time between two writes of a file.
const INTERVAL: Duration = Duration::from_secs(1);
/// A file that was not written for so long is from a process that was killed, and is removed.
const ABANDONED: Duration = Duration::from_secs(60);
/// The start and the end of the files' names.
const BEGIN: &str = "tidegate-";
const END: &str = ".json";

/// Begins to publish, if the environment asks for it.
pub(super) fn begin(core: &Arc<LimiterCore>) {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from) else {
        return;
    };
    let weak = Arc::downgrade(core);
    // The generation of the process that has a thread, plus one.
    let running = AtomicU64::new(0);
    let start = Arc::new(move || {
        let current = fork::generation() + 1;
        if running.swap(current, Ordering::Relaxed) != current {
            start(&weak, &folder);
        }
    });
    start();
    let _ = core.answers.decisions.denied_keys.set(DeniedKeys::new(start));
}

fn start(core: &Weak<LimiterCore>, folder: &Path) {
    let Some(strong) = core.upgrade() else { return };
    let publisher = Publisher { core: Weak::clone(core), file: folder.join(file_name(&strong)) };
    make_folder(folder);
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
            visible(&path.display().to_string())
        )
    });
}

fn file_name(core: &LimiterCore) -> String {
    format!("{BEGIN}{}-{}{END}", std::process::id(), core.answers.decisions.limiter())
}

/// Makes the folder if it does not exist, for this user alone.
fn make_folder(folder: &Path) {
    let builder = &mut DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(builder, 0o700);
    // If this fails, writing the file fails too, and that is logged.
    let _ = builder.create(folder);
}

/// Removes the files of processes that were killed.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(BEGIN) && name.ends_with(END));
        let age =
            fs::symlink_metadata(entry.path()).and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
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
    /// Publishes until the limiter ends.
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

    /// Readers see the old file or the new one. Only the user of this process may read it, because it has keys.
    fn write(&self, text: &str) -> io::Result<()> {
        let unfinished = self.file.with_extension("tmp");
        let mut options = OpenOptions::new();
        // A file that another process planted there is not opened, and no link is followed.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = match options.open(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&unfinished)?;
                options.open(&unfinished)?
            }
            opened => opened?,
        };
        let written = is_own(&self.file, &file).and_then(|()| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => fs::rename(unfinished, &self.file),
            Err(error) => {
                let _ = fs::remove_file(unfinished);
                Err(error)
            }
        }
    }
}

/// Checks that only the user of this process, which has made `file`, may write to the folder of `path`. Otherwise other
/// users could put files there that `tidegate top` reads, or take ours away.
fn is_own(path: &Path, file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let folder = path.parent().unwrap_or(path).metadata()?;
        if folder.uid() != file.metadata()?.uid() || folder.mode() & 0o022 != 0 {
            let why = "other users may write to the folder: name one in it that does not exist yet, which is made for this user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    let _ = (path, file);
    Ok(())
}

impl LimiterCore {
    fn published(&self) -> String {
        let mut notations = Map::new();
        self.policies.each(|plan| {
            notations.insert(plan.policy.name().to_owned(), plan.policy.to_string().into());
        });
        let policies: Map<_, _> = self
            .answers
            .decisions
            .read()
            .into_iter()
            .map(|(name, stats)| {
                let counts = json!({
                    "notation": notations.get(&name),
                    "allowed": stats.allowed,
                    "denied": stats.denied + stats.unavailable,
                    "shadow_denied": stats.shadow_denied,
                });
                (name, counts)
            })
            .collect();
        let table = self.answers.decisions.denied_keys.get().map(DeniedKeys::read).unwrap_or_default();
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    /// A folder of this user alone, which goes with this value.
    struct OwnFolder(PathBuf);

    impl OwnFolder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("tidegate-publisher-{}-{name}", std::process::id()));
            make_folder(&folder);
            Self(folder)
        }

        /// Publishes there, and returns the content of the file.
        fn publish(&self) -> io::Result<String> {
            let (sender, receiver) = mpsc::channel();
            let publisher = Publisher { core: Weak::new(), file: self.file() };
            std::thread::spawn(move || sender.send(publisher.write("published")));
            receiver.recv_timeout(Duration::from_secs(30)).expect("a planted file holds nothing up")?;
            fs::read_to_string(self.file())
        }

        fn file(&self) -> PathBuf {
            self.0.join("tidegate-1-1.json")
        }

        fn unfinished(&self) -> PathBuf {
            self.0.join("tidegate-1-1.tmp")
        }
    }

    impl Drop for OwnFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
    }

    #[test]
    fn a_planted_link_is_replaced_and_its_target_stays() {
        for planted in [OwnFolder::unfinished, OwnFolder::file] {
            let folder = OwnFolder::new("link");
            let target = folder.0.join("target");
            fs::write(&target, "of another program").expect("a file");
            symlink(&target, planted(&folder)).expect("a link");
            assert_eq!(folder.publish().expect("it is published"), "published");
            assert_eq!(fs::read_to_string(&target).expect("its text"), "of another program");
            assert!(fs::symlink_metadata(folder.file()).expect("a file").is_file(), "no link");
        }
    }

    #[test]
    fn a_planted_pipe_is_replaced_and_holds_nothing_up() {
        for planted in [OwnFolder::unfinished, OwnFolder::file] {
            let folder = OwnFolder::new("pipe");
            let made = Command::new("mkfifo").arg(planted(&folder)).status();
            assert!(made.is_ok_and(|status| status.success()));
            assert_eq!(folder.publish().expect("it is published"), "published");
            assert!(fs::symlink_metadata(folder.file()).expect("a file").is_file(), "no pipe");
        }
    }

    #[test]
    fn the_folder_and_the_file_are_of_this_user_alone() {
        let folder = OwnFolder::new("own");
        folder.publish().expect("it is published");
        assert_eq!((mode(&folder.0), mode(&folder.file())), (0o700, 0o600));
        for shared in [0o777, 0o1777, 0o720] {
            fs::set_permissions(&folder.0, fs::Permissions::from_mode(shared)).expect("its mode changes");
            let refused = folder.publish().expect_err("other users may write there");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("name one in it that does not exist yet"), "{refused}");
            assert!(!folder.unfinished().exists(), "nothing is left");
        }
    }
}
