//! The file of a store that processes share, in a folder that is removed with it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::Result;
use tidegate::host::{KeyNames, StoredFile};

/// Reads a whole file, and returns the number of its keys.
///
/// # Errors
/// The errors of the file, and `store_rejected` if a part is not whole.
pub fn examined_keys(url: &str, timeout: Duration) -> Result<usize> {
    StoredFile::open(url, &KeyNames::from("tg"), timeout)?.examine()
}

/// A place for such a file.
pub struct SharedFile {
    folder: PathBuf,
}

impl SharedFile {
    /// A place without a file yet, in memory if the system has such a place.
    #[must_use]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("tidegate-tests-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self { folder }
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join("limits")
    }

    /// The URL of the store in the file, with these options.
    #[must_use]
    pub fn url(&self, options: &str) -> String {
        format!("file://{}?{options}", self.path().display())
    }
}

impl Default for SharedFile {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // If this fails, only a folder is left behind.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}
