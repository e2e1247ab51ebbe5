//! Makes Node's event loop poll a file descriptor, through the functions of libuv that Node exports to addons.
#![allow(unsafe_code, reason = "libuv is a C library; all unsafe code about it stays in this file")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;

use libloading::os::unix::Library;
use napi::bindgen_prelude::FunctionRef;
use napi::{Env, JsValue, sys};

/// Constants of libuv: the type of a poll handle, and the event it reports.
const UV_POLL: c_int = 8;
const READABLE: c_int = 1;

type Handle = *mut c_void;
type OnPoll = unsafe extern "C" fn(Handle, c_int, c_int);
type OnClose = unsafe extern "C" fn(Handle);

/// The functions of libuv that Node exports.
struct Functions {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    set_data: unsafe extern "C" fn(Handle, *mut c_void),
    get_data: unsafe extern "C" fn(Handle) -> *mut c_void,
    init: unsafe extern "C" fn(*mut sys::uv_loop_s, Handle, RawFd) -> c_int,
    start: unsafe extern "C" fn(Handle, c_int, OnPoll) -> c_int,
    stop: unsafe extern "C" fn(Handle) -> c_int,
    unref: unsafe extern "C" fn(Handle),
    close: unsafe extern "C" fn(Handle, OnClose),
}

impl Functions {
    /// Returns `None` in a host without libuv.
    fn get() -> Option<&'static Self> {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
        // SAFETY: libuv has declared these types since its version 1.19, which is older than any Node that loads this addon.
        let load = || unsafe {
            let this = Library::this();
            Some(Self {
                handle_size: *this.get(c"uv_handle_size".to_bytes_with_nul()).ok()?,
                set_data: *this.get(c"uv_handle_set_data".to_bytes_with_nul()).ok()?,
                get_data: *this.get(c"uv_handle_get_data".to_bytes_with_nul()).ok()?,
                init: *this.get(c"uv_poll_init".to_bytes_with_nul()).ok()?,
                start: *this.get(c"uv_poll_start".to_bytes_with_nul()).ok()?,
                stop: *this.get(c"uv_poll_stop".to_bytes_with_nul()).ok()?,
                unref: *this.get(c"uv_unref".to_bytes_with_nul()).ok()?,
                close: *this.get(c"uv_close".to_bytes_with_nul()).ok()?,
            })
        };
        FUNCTIONS.get_or_init(load).as_ref()
    }
}

/// The data of a handle. libuv has a pointer to it until the handle is closed.
struct HandleData {
    functions: &'static Functions,
    env: sys::napi_env,
    on_readable: Box<dyn FnMut(&Env)>,
    /// The memory of the handle itself.
    memory: Box<[u128]>,
    /// Runs if the loop ends before the handle is closed. Node waits for it.
    hook: sys::napi_async_cleanup_hook_handle,
    /// True until the handle begins to close.
    open: Rc<Cell<bool>>,
}

/// As long as this lives, the event loop calls back whenever the file is readable. It keeps no process alive. Create and
/// drop it on the thread of the loop.
pub(crate) struct UvPoll {
    data: *mut HandleData,
    open: Rc<Cell<bool>>,
}

impl UvPoll {
    /// Returns `None` if the loop cannot poll the file.
    pub(crate) fn start(env: &Env, file: RawFd, on_readable: impl FnMut(&Env) + 'static) -> Option<Self> {
        let functions = Functions::get()?;
        let uv_loop = env.get_uv_event_loop().ok()?;
        // SAFETY: the memory is as large as libuv says, aligned for anything, and lives until libuv has closed the handle.
        unsafe {
            let memory = vec![0; (functions.handle_size)(UV_POLL).div_ceil(size_of::<u128>())].into_boxed_slice();
            let open = Rc::new(Cell::new(true));
            let data = HandleData {
                functions,
                env: env.raw(),
                on_readable: Box::new(on_readable),
                memory,
                hook: ptr::null_mut(),
                open: Rc::clone(&open),
            };
            let data = Box::into_raw(Box::new(data));
            let handle = handle(data);
            if (functions.init)(uv_loop, handle, file) != 0 {
                drop(Box::from_raw(data));
                return None;
            }
            (functions.set_data)(handle, data.cast());
            (functions.unref)(handle);
            let started = (functions.start)(handle, READABLE, on_poll) == 0
                && sys::napi_add_async_cleanup_hook(env.raw(), Some(on_end), data.cast(), &raw mut (*data).hook)
                    == sys::Status::napi_ok;
            // If this failed, the drop of the poll closes the handle, which is initialised by now.
            let poll = Self { data, open };
            started.then_some(poll)
        }
    }
}

impl Drop for UvPoll {
    fn drop(&mut self) {
        if !self.open.replace(false) {
            return;
        }
        // SAFETY: the data lives until its handle is closed, and `open` said that nothing has begun to close it.
        unsafe {
            let data = self.data;
            if !(*data).hook.is_null() {
                sys::napi_remove_async_cleanup_hook((*data).hook);
                (*data).hook = ptr::null_mut();
            }
            close(data);
        }
    }
}

unsafe fn handle(data: *mut HandleData) -> Handle {
    // SAFETY: the caller's data is alive.
    unsafe { (*data).memory.as_mut_ptr().cast() }
}

unsafe fn close(data: *mut HandleData) {
    // SAFETY: the caller's data is alive, and its handle is not closed yet.
    unsafe {
        let (functions, handle) = ((*data).functions, handle(data));
        (functions.stop)(handle);
        (functions.close)(handle, on_close);
    }
}

unsafe extern "C" fn on_poll(handle: Handle, _status: c_int, _events: c_int) {
    let Some(functions) = Functions::get() else { return };
    // SAFETY: libuv calls this with an open handle, whose data was set when it was initialised.
    unsafe {
        let data: *mut HandleData = (functions.get_data)(handle).cast();
        let env = (*data).env;
        let mut scope = ptr::null_mut();
        if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
            return;
        }
        // `on_readable` may drop the `UvPoll`, but the data stays until the loop has closed the handle. A panic must not
        // cross into C. Its message has been printed by then.
        let called = AssertUnwindSafe(|| ((*data).on_readable)(&Env::from_raw(env)));
        drop(catch_unwind(called));
        sys::napi_close_handle_scope(env, scope);
    }
}

unsafe extern "C" fn on_end(_: sys::napi_async_cleanup_hook_handle, data: *mut c_void) {
    let data: *mut HandleData = data.cast();
    // SAFETY: the hook is removed before the data is dropped.
    unsafe {
        if (*data).open.replace(false) {
            close(data);
        }
    }
}

unsafe extern "C" fn on_close(handle: Handle) {
    let Some(functions) = Functions::get() else { return };
    // SAFETY: nothing reads the data any more, because `open` is false.
    unsafe {
        let data: *mut HandleData = (functions.get_data)(handle).cast();
        let hook = (*data).hook;
        drop(Box::from_raw(data));
        if !hook.is_null() {
            sys::napi_remove_async_cleanup_hook(hook);
        }
    }
}

/// Calls a function in the way of the event loop: the callbacks of promises that it settles run before this returns.
pub(crate) fn call_back(env: &Env, function: &FunctionRef<i32, ()>, argument: i32) -> napi::Result<()> {
    let function = function.borrow_back(env)?;
    // SAFETY: this runs on the thread of the loop, within the handle scope of its callback.
    unsafe {
        let (mut global, mut number, mut result) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        sys::napi_get_global(env.raw(), &raw mut global);
        sys::napi_create_int32(env.raw(), argument, &raw mut number);
        let called = sys::napi_make_callback(
            env.raw(),
            ptr::null_mut(),
            global,
            function.raw(),
            1,
            &raw const number,
            &raw mut result,
        );
        if called == sys::Status::napi_pending_exception {
            let mut error = ptr::null_mut();
            sys::napi_get_and_clear_last_exception(env.raw(), &raw mut error);
            sys::napi_fatal_exception(env.raw(), error);
        }
    }
    Ok(())
}
