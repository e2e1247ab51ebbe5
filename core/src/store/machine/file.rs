//! The file that processes share: how it is made, and what is refused.

use std::fs::{File, OpenOptions};
use std::hash::BuildHasher as _;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::header::{Geometry, Unusable};
use super::words::Words;
use crate::error::{Error, ErrorKind, Result};
use crate::store::url::MachineFile;

/// How long to sleep while another process makes the file or makes it whole.
const PAUSE: Duration = Duration::from_millis(1);

/// What file systems of a network have in place of a number: pages that are mapped are not shared by it with other machines, nor always
/// with other processes.
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

/// A file that is mapped.
pub(super) struct OpenFile {
    pub(super) words: Words,
    pub(super) geometry: Geometry,
    /// Records that were damaged when the machine was started again.
    pub(super) damaged: usize,
}

impl OpenFile {
    /// Opens the file, and makes it where there is none.
    ///
    /// # Errors
    /// `config_invalid` for a place that cannot be used, `store_rejected` for a file that is damaged or of another version,
    /// `store_timeout` where another process does not finish what it began.
    pub(super) fn open(place: &MachineFile, timeout: Duration) -> Result<Self> {
        let (path, deadline) = (&*place.path, Instant::now() + timeout);
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
            lock(&file, path, deadline)?;
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
        let (geometry, damaged) = Geometry::read(&words, bytes).map_err(|why| unusable(path, why))?;
        Ok(Self { words, geometry, damaged })
    }
}

fn open_existing(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Makes the file aside and gives it its name when it is whole, so that no process ever sees a part of it.
fn create(place: &MachineFile) -> io::Result<()> {
    let folder = place.path.parent().unwrap_or(Path::new("/"));
    let mode = place.mode;
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let unnamed = OpenOptions::new().read(true).write(true).custom_flags(flags).mode(mode).open(folder);
    match unnamed {
        Ok(file) => {
            fill(&file, place)?;
            let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            Ok(rustix::fs::linkat(CWD, name, CWD, &*place.path, AtFlags::SYMLINK_FOLLOW)?)
        }
        Err(error) if [Some(Errno::OPNOTSUPP), Some(Errno::ISDIR), Some(Errno::INVAL)].contains(&errno(&error)) => {
            let mut name = place.path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.new", std::process::id()));
            let aside = folder.join(name);
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&aside)?;
            let made = fill(&file, place).and_then(|()| std::fs::hard_link(&aside, &place.path));
            std::fs::remove_file(&aside)?;
            made
        }
        Err(error) => Err(error),
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Allocates the bytes of a new file, and writes its header.
fn fill(file: &File, place: &MachineFile) -> io::Result<()> {
    // The mask of the process does not decide who may use it.
    file.set_permissions(std::fs::Permissions::from_mode(place.mode))?;
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, place.max_bytes as u64) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let words = Words::map(file, place.max_bytes)?;
    let seed = std::hash::RandomState::new().hash_one(std::process::id());
    Geometry::new(place.max_bytes, seed).write(&words);
    Ok(())
}

/// Refuses what is no file of this machine, and a file that others may write to.
fn check_place(file: &File, place: &MachineFile) -> Result<()> {
    let path = &*place.path;
    let metadata = file.metadata().map_err(|error| cannot(path, "read", &error))?;
    if !metadata.is_file() {
        return Err(refused(path, "is no regular file"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & !place.mode != 0 {
        return Err(refused(
            path,
            &format!(
                "may be used by others, with mode {mode:04o}: take their rights away, or allow them with ?mode={mode:04o}"
            ),
        ));
    }
    #[cfg(target_os = "linux")]
    if let Ok(system) = rustix::fs::fstatfs(file.as_fd()) {
        let kind = system.f_type as u64 & 0xffff_ffff;
        if let Some((_, name)) = NETWORKS.iter().find(|(number, _)| *number == kind) {
            return Err(refused(
                path,
                &format!(
                    "is on a file system that machines share ({name}), where what one process writes others may not see: choose a \
                     place of this machine, as /run or /dev/shm"
                ),
            ));
        }
    }
    Ok(())
}

/// Waits until no other process makes the file whole.
fn lock(file: &File, path: &Path, deadline: Instant) -> Result<()> {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                return Err(Error::new(
                    ErrorKind::StoreTimeout,
                    format!(
                        "{} is being opened by another process, which does not finish: it may be stopped",
                        path.display()
                    ),
                ));
            }
            Err(error) => return Err(cannot(path, "locked", &error.into())),
        }
    }
}

fn refused(path: &Path, why: &str) -> Error {
    Error::config(format!("the file of the store, {}, {why}", path.display()))
}

fn cannot(path: &Path, what: &str, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "; its space is allocated when it is made: give the file system more, or the store less, as in ?max_bytes=16MB"
        }
        io::ErrorKind::NotFound => "; its folder has to exist",
        io::ErrorKind::PermissionDenied => {
            "; the user of this process needs the right to read and to write it, and its folder"
        }
        _ => "",
    };
    refused(path, &format!("cannot be {what}: {error}{advice}")).because(error)
}

fn unusable(path: &Path, why: Unusable) -> Error {
    let advice = "stop the processes that use it and remove it, or name another one";
    let why = match why {
        Unusable::Foreign => format!("is no file of a store: {advice}"),
        Unusable::OtherLayout(layout) => {
            format!("has layout {layout}, which this release does not know: use one release, or name another file")
        }
        Unusable::Damaged => format!("is damaged, its header does not fit: {advice}"),
        Unusable::OtherTime => {
            return refused(
                path,
                "is used by processes of another time namespace, whose time since the start of the machine differs: give this \
                 container the same offset, or name another file",
            );
        }
    };
    Error::new(ErrorKind::StoreRejected, format!("the file of the store, {}, {why}", path.display()))
}
