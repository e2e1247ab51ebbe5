//! Makes and opens the file that processes share, and refuses files that it cannot use.

use std::fs::{File, OpenOptions};
use std::hash::BuildHasher as _;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::header::{Geometry, Opened, REPAIRED, Unusable};
use super::machine_clock::MachineClock;
use super::notices::Notice;
use super::repair::Losses;
use super::words::Words;
use crate::error::{Error, ErrorKind, Result, visible};
use crate::store::url::MachineFile;

/// How long to sleep while another process makes the file or makes it whole.
const PAUSE: Duration = Duration::from_millis(1);
/// For how long a process may make one part whole after a restart of the machine.
const REPAIR: Duration = Duration::from_secs(5);

/// A file that is mapped.
pub(super) struct OpenFile {
    pub(super) words: Words,
    pub(super) geometry: Geometry,
    pub(super) clock: MachineClock,
    /// The losses that were found when it was opened, and other damage.
    pub(super) losses: Losses,
    pub(super) damage: Vec<Notice>,
}

impl OpenFile {
    /// Opens the file, or makes it if there is none.
    ///
    /// # Errors
    /// `config_invalid` for a place that cannot be used, `store_rejected` for a file that is damaged or of another
    /// version, `store_timeout` if another process does not finish opening it.
    pub(super) fn open(place: &MachineFile, timeout: Duration) -> Result<Self> {
        let path = &*place.path;
        loop {
            let file = match open_existing(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => match create(place) {
                    Ok(()) => continue,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    Err(error) => return Err(cannot(path, "made", &error)),
                },
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    return Err(refused(
                        path,
                        "is a link, and another user may have put it there: name the file itself",
                    ));
                }
                Err(error) => return Err(cannot(path, "opened", &error)),
            };
            check_place(&file, place)?;
            lock(&file, path, timeout)?;
            let opened = Self::of(&file, path);
            // The mapping keeps the file open, and would keep the lock.
            rustix::fs::flock(&file, FlockOperation::Unlock)
                .map_err(|error| cannot(path, "unlocked", &error.into()))?;
            return opened;
        }
    }

    fn of(file: &File, path: &Path) -> Result<Self> {
        let length = file.metadata().map_err(|error| cannot(path, "read", &error))?.len();
        let bytes = usize::try_from(length).unwrap_or(0);
        if bytes < super::header::MIN_FILE {
            return Err(unusable(path, Unusable::Foreign));
        }
        let words = Words::map(file, bytes).map_err(|error| cannot(path, "mapped", &error))?;
        let opened = Geometry::read(&words, bytes).map_err(|why| unusable(path, why))?;
        let Opened { geometry, base, losses, is_start_damaged, is_time_damaged } = opened;
        let found = [(is_start_damaged, Notice::Start), (is_time_damaged, Notice::RestartTime)];
        let damage = found.into_iter().filter_map(|(is_damaged, notice)| is_damaged.then_some(notice)).collect();
        Ok(Self { words, geometry, clock: MachineClock::new(base), losses, damage })
    }
}

fn open_existing(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Makes the file aside and links it under its name when it is whole, so that no process ever sees a part of it.
fn create(place: &MachineFile) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(made) = create_without_name(place) {
        return made;
    }
    let (folder, mut name) = (folder_of(place), place.path.file_name().unwrap_or_default().to_owned());
    name.push(format!(".{:016x}.new", random()));
    let aside = folder.join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(place.mode).open(&aside)?;
    let made = fill(&file, place).and_then(|()| std::fs::hard_link(&aside, &place.path));
    std::fs::remove_file(&aside)?;
    made
}

/// Makes a file without a name, which is gone if the process ends meanwhile. `None` if the system cannot.
#[cfg(target_os = "linux")]
fn create_without_name(place: &MachineFile) -> Option<io::Result<()>> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{AtFlags, CWD};

    let flags = OFlags::TMPFILE.bits().cast_signed();
    let unnamed = OpenOptions::new().read(true).write(true).custom_flags(flags).mode(place.mode).open(folder_of(place));
    let file = match unnamed {
        Ok(file) => file,
        Err(error)
            if [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL]
                .map(|known| Some(known.raw_os_error()))
                .contains(&error.raw_os_error()) =>
        {
            return None;
        }
        Err(error) => return Some(Err(error)),
    };
    if let Err(error) = fill(&file, place) {
        return Some(Err(error));
    }
    match rustix::fs::linkat(
        CWD,
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        CWD,
        &*place.path,
        AtFlags::SYMLINK_FOLLOW,
    ) {
        // There is no /proc.
        Err(Errno::NOENT) => None,
        linked => Some(linked.map_err(io::Error::from)),
    }
}

fn folder_of(place: &MachineFile) -> &Path {
    place.path.parent().unwrap_or(Path::new("/"))
}

/// A number that no other process has.
fn random() -> u64 {
    std::hash::RandomState::new().hash_one(std::process::id())
}

/// Allocates the bytes of a new file, and writes its header.
fn fill(file: &File, place: &MachineFile) -> io::Result<()> {
    // The umask of the process must not decide who may use it.
    file.set_permissions(std::fs::Permissions::from_mode(place.mode))?;
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, place.max_bytes as u64) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let words = Words::map(file, place.max_bytes)?;
    Geometry::new(place.max_bytes, random()).write(&words);
    Ok(())
}

/// Refuses anything but a regular file of this machine, and a file that more users may use than the mode allows.
fn check_place(file: &File, place: &MachineFile) -> Result<()> {
    let path = &*place.path;
    let metadata = file.metadata().map_err(|error| cannot(path, "read", &error))?;
    if !metadata.is_file() {
        return Err(refused(path, "is not a regular file"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & !place.mode != 0 {
        return Err(refused(
            path,
            &format!(
                "has mode {mode:04o}, so that other users may open it: take their rights away with chmod, or allow them with \
                 ?mode={mode:04o}"
            ),
        ));
    }
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own && place.mode & 0o022 == 0 {
        return Err(refused(
            path,
            &format!(
                "belongs to the user {owner}, and this process runs as the user {own}: run the process as {owner}, or let \
                 others write to the file with ?mode=0660"
            ),
        ));
    }
    if let Some(name) = network(file) {
        return Err(refused(
            path,
            &format!(
                "is on a file system that machines share ({name}), on which processes may not see each other's writes: choose \
                 a local folder, such as /run or /dev/shm"
            ),
        ));
    }
    Ok(())
}

/// The kind of network file system that the file is on, if that can be found out.
#[cfg(target_os = "linux")]
fn network(file: &File) -> Option<&'static str> {
    /// The type numbers of network file systems.
    const NETWORKS: [(u64, &str); 12] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xfe53_4d42, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0x0102_1997, "9p"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
        (0x7375_7245, "Coda"),
        (0x0bd0_0bd0, "Lustre"),
        (0x0116_1970, "GFS2"),
        (0x7461_636f, "OCFS2"),
        (0x786f_4256, "shared folders of a virtual machine"),
    ];
    let kind = rustix::fs::fstatfs(file).ok()?.f_type as u64 & 0xffff_ffff;
    NETWORKS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

#[cfg(target_vendor = "apple")]
fn network(file: &File) -> Option<&'static str> {
    /// The flag of a local disk.
    const LOCAL: u32 = 0x1000;
    (rustix::fs::fstatfs(file).ok()?.f_flags & LOCAL == 0).then_some("a volume of a network")
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
const fn network(_: &File) -> Option<&'static str> {
    None
}

/// Waits until no other process opens the file: for `timeout`, and longer while that process makes shards whole.
fn lock(file: &File, path: &Path, timeout: Duration) -> Result<()> {
    let (mut repaired, mut since) = (0, Instant::now());
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(cannot(path, "locked", &error.into())),
        }
        let now = repaired_parts(file);
        if now != repaired {
            (repaired, since) = (now, Instant::now());
        }
        if since.elapsed() >= if repaired > 0 { timeout.max(REPAIR) } else { timeout } {
            let why = "is being opened by another process, which has not finished: that process may be stopped";
            return Err(Error::new(ErrorKind::StoreTimeout, format!("{} {why}", path.display())).of_no_run());
        }
        std::thread::sleep(PAUSE);
    }
}

/// The number of the shard that another process is making whole. 0 if there is none.
fn repaired_parts(file: &File) -> u64 {
    let mut number = [0; 8];
    let read = file.read_exact_at(&mut number, 8 * REPAIRED as u64);
    read.map_or(0, |()| u64::from_ne_bytes(number))
}

fn refused(path: &Path, why: &str) -> Error {
    Error::config(format!("the file of the store, {}, {why}", shown(path)))
}

/// A path as messages show it.
pub(super) fn shown(path: &Path) -> String {
    visible(&path.display().to_string()).into_owned()
}

fn cannot(path: &Path, what: &str, error: &io::Error) -> Error {
    let make_folder = format!("; {}", no_folder(path));
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ": the file takes all its space when it is made. Give the file system more room, or the store less, as in \
             ?max_bytes=16MB"
        }
        io::ErrorKind::NotFound => &make_folder,
        io::ErrorKind::PermissionDenied => {
            ": the user of this process must be able to read and write the file and its folder"
        }
        _ => "",
    };
    refused(path, &format!("cannot be {what}: {error}{advice}")).because(error)
}

/// The advice if the folder of a file does not exist.
pub(super) fn no_folder(path: &Path) -> String {
    format!("its folder does not exist: make it first, with mkdir -p {}", shown(path.parent().unwrap_or(path)))
}

fn unusable(path: &Path, why: Unusable) -> Error {
    let advice = "stop the processes that use it and remove it, or name another file";
    let why = match why {
        Unusable::Foreign => format!("is not a file of a store: {advice}"),
        Unusable::OtherLayout(layout) => {
            format!(
                "has layout {layout}, which this release does not know: run one release in all processes, and {advice}"
            )
        }
        Unusable::Damaged => format!("has a damaged header, and all usage in it is lost: {advice}"),
        Unusable::OtherTime => {
            return refused(
                path,
                "is used by processes of another time namespace, where the time since the start of the machine differs: give \
                 this container the same offset, or name another file",
            );
        }
    };
    Error::new(ErrorKind::StoreRejected, format!("the file of the store, {}, {why}", shown(path)))
}
