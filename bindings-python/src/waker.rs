//! How the thread that has answers wakes an event loop.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

/// Wakes a loop once for all that is on a list.
pub(crate) struct Waker {
    /// Whether the loop was woken and has not looked since.
    woken: AtomicBool,
    way: Way,
}

enum Way {
    /// The loop watches a file that becomes readable: no lock of Python's is needed.
    File(file::Pair),
    /// The loop watches no files (Windows' default one): `call_soon_threadsafe` and what it is to call.
    Call(Py<PyAny>, std::sync::OnceLock<Py<PyAny>>),
}

impl Waker {
    /// A waker for a loop that calls `look` when it is woken.
    pub(crate) fn file() -> io::Result<Self> {
        Ok(Self { woken: AtomicBool::new(false), way: Way::File(file::Pair::new()?) })
    }

    pub(crate) fn call(call_soon_threadsafe: Py<PyAny>) -> Self {
        Self { woken: AtomicBool::new(false), way: Way::Call(call_soon_threadsafe, std::sync::OnceLock::new()) }
    }

    /// What `call` is to call.
    pub(crate) fn calls(&self, look: Py<PyAny>) {
        if let Way::Call(_, place) = &self.way {
            drop(place.set(look));
        }
    }

    /// The file to watch.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        match &self.way {
            Way::File(pair) => pair.descriptor(),
            Way::Call(..) => None,
        }
    }

    /// There is something to look at. From any thread; does nothing when the loop was told and has not looked yet.
    pub(crate) fn wake(&self) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        match &self.way {
            // It cannot fail: the buffer has room for more than the one wake-up that is ever in it.
            Way::File(pair) => drop(pair.writer().write(&1_u64.to_ne_bytes())),
            Way::Call(call_soon_threadsafe, look) => {
                // Without an interpreter, or with a loop that was closed, nobody is left to be told.
                Python::try_attach(|py| {
                    look.get().map(|look| call_soon_threadsafe.call1(py, (look.clone_ref(py),)).map(drop))
                });
            }
        }
    }

    /// The loop looks by itself: until it has, nobody need wake it.
    pub(crate) fn hush(&self) {
        self.woken.store(true, Ordering::Release);
    }

    /// The loop has looked by itself, and looks at its list now: whatever is put on that from now on wakes it again.
    pub(crate) fn looks_itself(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// The loop was woken and looks: whatever is put on the list from now on wakes it again.
    pub(crate) fn looks(&self) {
        if let Way::File(pair) = &self.way {
            let mut buffer = [0; 8];
            drop(pair.reader().read(&mut buffer));
        }
        self.woken.store(false, Ordering::Release);
    }

    pub(crate) fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        if let Way::Call(call, look) = &self.way {
            visit.call(call)?;
            if let Some(look) = look.get() {
                visit.call(look)?;
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod file {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    use rustix::event::{EventfdFlags, eventfd};

    /// One eventfd is both ends: half the price of a pipe.
    pub(super) struct Pair(File);

    impl Pair {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into()))
        }

        pub(super) fn descriptor(&self) -> Option<i32> {
            Some(self.0.as_raw_fd())
        }

        pub(super) fn reader(&self) -> &File {
            &self.0
        }

        pub(super) fn writer(&self) -> &File {
            &self.0
        }
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod file {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// A pair of sockets, which every Unix has.
    pub(super) struct Pair(UnixStream, UnixStream);

    impl Pair {
        pub(super) fn new() -> io::Result<Self> {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok(Self(reader, writer))
        }

        pub(super) fn descriptor(&self) -> Option<i32> {
            Some(self.0.as_raw_fd())
        }

        pub(super) fn reader(&self) -> &UnixStream {
            &self.0
        }

        pub(super) fn writer(&self) -> &UnixStream {
            &self.1
        }
    }
}

#[cfg(not(unix))]
mod file {
    use std::io;

    /// There is none: loops are called.
    pub(super) struct Pair;

    impl Pair {
        pub(super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn descriptor(&self) -> Option<i32> {
            None
        }

        pub(super) fn reader(&self) -> io::Empty {
            io::empty()
        }

        pub(super) fn writer(&self) -> io::Sink {
            io::sink()
        }
    }
}
