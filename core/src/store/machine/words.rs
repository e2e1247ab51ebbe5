//! A mapped file as numbers that several processes read and write.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

use super::sync::Ordering;

/// Every access is atomic, so that no process ever sees a part of a number, whatever others do.
pub(super) struct Words {
    map: MmapRaw,
    length: usize,
}

impl Words {
    /// Maps a file of that many bytes.
    pub(super) fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes).map_raw(file)?;
        Ok(Self { map, length: bytes / size_of::<u64>() })
    }

    #[inline(always)]
    fn all(&self) -> &[AtomicU64] {
        #[allow(
            unsafe_code,
            reason = "the mapping lives as long as this value, begins at a page and has that length; it is read and written by \
                      atomic operations alone"
        )]
        unsafe {
            std::slice::from_raw_parts(self.map.as_mut_ptr().cast::<AtomicU64>(), self.length)
        }
    }

    #[inline(always)]
    pub(super) fn load(&self, at: usize) -> u64 {
        self.all()[at].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn store(&self, at: usize, number: u64) {
        self.all()[at].store(number, Ordering::Relaxed);
    }

    /// Reads a number, with everything that others wrote before they published it.
    #[inline(always)]
    pub(super) fn read_published(&self, at: usize) -> u64 {
        self.all()[at].load(Ordering::Acquire)
    }

    /// Replaces a number if it is still `before`, and publishes all earlier writes with it. Returns true if it did.
    #[inline(always)]
    pub(super) fn publish(&self, at: usize, before: u64, number: u64) -> bool {
        self.all()[at].compare_exchange(before, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Writes a number, and publishes all earlier writes with it.
    #[inline(always)]
    pub(super) fn release(&self, at: usize, number: u64) {
        self.all()[at].store(number, Ordering::Release);
    }
}
