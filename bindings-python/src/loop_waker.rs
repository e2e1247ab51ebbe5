//! Lets a thread that has answers wake an event loop.

use std::io::{self, Read, Write};
use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::python_call::PythonCall;
use crate::wake_flag::WakeFlag;

/// Wakes a loop once for all answers that it has not taken yet.
pub(crate) struct LoopWaker {
    flag: WakeFlag,
    method: WakeMethod,
}

enum WakeMethod {
    /// The loop watches a file that becomes readable. A write to it needs no lock of Python.
    File(wake_file::WakeFile),
    /// The loop cannot watch files, like the default one of Windows. Holds `call_soon_threadsafe`, and its callback.
    Call(Py<PyAny>, OnceLock<Py<PyAny>>),
}

impl LoopWaker {
    /// A waker for a loop that watches the file of `descriptor`.
    pub(crate) fn file() -> io::Result<Self> {
        Ok(Self { flag: WakeFlag::new(), method: WakeMethod::File(wake_file::WakeFile::new()?) })
    }

    /// A waker for any loop. It needs `set_callback`.
    pub(crate) fn call(call_soon_threadsafe: Py<PyAny>) -> Self {
        Self { flag: WakeFlag::new(), method: WakeMethod::Call(call_soon_threadsafe, OnceLock::new()) }
    }

    /// Sets the callback of the loop.
    pub(crate) fn set_callback(&self, callback: Py<PyAny>) {
        if let WakeMethod::Call(_, cell) = &self.method {
            drop(cell.set(callback));
        }
    }

    /// The file to watch.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        match &self.method {
            WakeMethod::File(file) => file.descriptor(),
            WakeMethod::Call(..) => None,
        }
    }

    /// Wakes the loop, from any thread. Does nothing if it was woken and has not taken the answers since.
    pub(crate) fn wake(&self) {
        if !self.flag.must_wake() {
            return;
        }
        match &self.method {
            // The write cannot fail, because the buffer has room for more than one wake-up, and never holds more.
            WakeMethod::File(file) => drop(file.writer().write(&1_u64.to_ne_bytes())),
            WakeMethod::Call(call_soon_threadsafe, callback) => {
                // Without an interpreter, or with a closed loop, there is nothing left to wake.
                Python::try_attach(|py| {
                    let _call = PythonCall::begin(py);
                    let callback = callback.get()?.clone_ref(py);
                    Some(call_soon_threadsafe.call1(py, (callback,)).map(drop))
                });
            }
        }
    }

    /// Notes that the loop is about to take the answers on its own. Until `enable` it need not be woken.
    pub(crate) fn suppress(&self) {
        self.flag.suppress();
    }

    /// Notes that the loop takes the answers now. Later answers wake it again.
    pub(crate) fn enable(&self) {
        self.flag.enable();
    }

    /// Notes that the woken loop takes the answers now. Later answers wake it again.
    pub(crate) fn acknowledge(&self) {
        if let WakeMethod::File(file) = &self.method {
            let mut buffer = [0; 8];
            drop(file.reader().read(&mut buffer));
        }
        self.enable();
    }

    pub(crate) fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        if let WakeMethod::Call(call_soon_threadsafe, callback) = &self.method {
            visit.call(call_soon_threadsafe)?;
            if let Some(callback) = callback.get() {
                visit.call(callback)?;
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod wake_file {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    use rustix::event::{EventfdFlags, eventfd};

    /// One eventfd is both ends, at half the cost of a pipe.
    pub(super) struct WakeFile(File);

    impl WakeFile {
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
mod wake_file {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// A pair of sockets, which every Unix has.
    pub(super) struct WakeFile(UnixStream, UnixStream);

    impl WakeFile {
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
mod wake_file {
    use std::io;

    /// There is no such file, so the waker calls loops.
    pub(super) struct WakeFile;

    impl WakeFile {
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
