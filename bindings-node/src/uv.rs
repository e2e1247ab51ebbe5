//! A file that Node's event loop watches for us, by the few functions of libuv that Node offers to addons.
#![allow(unsafe_code, reason = "libuv speaks C; everything that is unsafe about it stays in this file")]

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

/// Numbers of libuv's: the type of a handle that polls, and which events it reports.
const UV_POLL: c_int = 8;
const READABLE: c_int = 1;

type Handle = *mut c_void;
type OnPoll = unsafe extern "C" fn(Handle, c_int, c_int);
type OnClose = unsafe extern "C" fn(Handle);

/// What Node exports of libuv.
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
    /// `None` in a host that has no libuv.
    fn get() -> Option<&'static Self> {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
        // SAFETY: the types are those that libuv has declared since its version 1.19, older than any Node that loads us.
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

/// What a handle leads to; libuv has it until the handle is closed.
struct Place {
    functions: &'static Functions,
    env: sys::napi_env,
    called: Box<dyn FnMut(&Env)>,
    /// Where libuv keeps the handle itself.
    memory: Box<[u128]>,
    /// Given when the loop ends before we do: Node waits for it.
    hook: sys::napi_async_cleanup_hook_handle,
    /// Whether the handle is still to be closed.
    open: Rc<Cell<bool>>,
}

/// While it lives, the event loop calls back whenever the file is readable. It keeps no process alive. To be made and
/// dropped on the thread of the loop.
pub(crate) struct Poll {
    place: *mut Place,
    open: Rc<Cell<bool>>,
}

impl Poll {
    /// `None` where the loop cannot watch the file.
    pub(crate) fn start(env: &Env, file: RawFd, called: impl FnMut(&Env) + 'static) -> Option<Self> {
        let functions = Functions::get()?;
        let uv_loop = env.get_uv_event_loop().ok()?;
        // SAFETY: the memory is as large as libuv says, aligned for anything, and lives until libuv has closed the handle.
        unsafe {
            let memory = vec![0; (functions.handle_size)(UV_POLL).div_ceil(size_of::<u128>())].into_boxed_slice();
            let open = Rc::new(Cell::new(true));
            let place = Place {
                functions,
                env: env.raw(),
                called: Box::new(called),
                memory,
                hook: ptr::null_mut(),
                open: Rc::clone(&open),
            };
            let place = Box::into_raw(Box::new(place));
            let handle = handle(place);
            if (functions.init)(uv_loop, handle, file) != 0 {
                drop(Box::from_raw(place));
                return None;
            }
            (functions.set_data)(handle, place.cast());
            (functions.unref)(handle);
            let started = (functions.start)(handle, READABLE, on_poll) == 0
                && sys::napi_add_async_cleanup_hook(env.raw(), Some(on_end), place.cast(), &raw mut (*place).hook)
                    == sys::Status::napi_ok;
            // A handle that was initialised is closed as any other.
            let poll = Self { place, open };
            started.then_some(poll)
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        if !self.open.replace(false) {
            return;
        }
        // SAFETY: the place lives until its handle is closed, which nobody has begun.
        unsafe {
            let place = self.place;
            if !(*place).hook.is_null() {
                sys::napi_remove_async_cleanup_hook((*place).hook);
                (*place).hook = ptr::null_mut();
            }
            close(place);
        }
    }
}

unsafe fn handle(place: *mut Place) -> Handle {
    // SAFETY: the caller's place is alive.
    unsafe { (*place).memory.as_mut_ptr().cast() }
}

unsafe fn close(place: *mut Place) {
    // SAFETY: the caller's place is alive, and its handle is not closed yet.
    unsafe {
        let (functions, handle) = ((*place).functions, handle(place));
        (functions.stop)(handle);
        (functions.close)(handle, on_close);
    }
}

unsafe extern "C" fn on_poll(handle: Handle, _status: c_int, _events: c_int) {
    let Some(functions) = Functions::get() else { return };
    // SAFETY: libuv calls with a handle that is open; its data is the place.
    unsafe {
        let place: *mut Place = (functions.get_data)(handle).cast();
        let env = (*place).env;
        let mut scope = ptr::null_mut();
        if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
            return;
        }
        // What is called may drop the `Poll`; the place stays until the loop comes round.
        // No panic may cross into C; what it says has been printed.
        let called = AssertUnwindSafe(|| ((*place).called)(&Env::from_raw(env)));
        drop(catch_unwind(called));
        sys::napi_close_handle_scope(env, scope);
    }
}

unsafe extern "C" fn on_end(_: sys::napi_async_cleanup_hook_handle, place: *mut c_void) {
    let place: *mut Place = place.cast();
    // SAFETY: the hook is removed before a place goes.
    unsafe {
        if (*place).open.replace(false) {
            close(place);
        }
    }
}

unsafe extern "C" fn on_close(handle: Handle) {
    let Some(functions) = Functions::get() else { return };
    // SAFETY: nothing reads the place any more: `open` is false.
    unsafe {
        let place: *mut Place = (functions.get_data)(handle).cast();
        let hook = (*place).hook;
        drop(Box::from_raw(place));
        if !hook.is_null() {
            sys::napi_remove_async_cleanup_hook(hook);
        }
    }
}

/// Calls a function as the event loop does: what it settles goes on before this returns.
pub(crate) fn call_back(env: &Env, function: &FunctionRef<i32, ()>, argument: i32) -> napi::Result<()> {
    let function = function.borrow_back(env)?;
    // SAFETY: on the thread of the loop, within the scope of its callback.
    unsafe {
        let (mut global, mut number, mut answer) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        sys::napi_get_global(env.raw(), &raw mut global);
        sys::napi_create_int32(env.raw(), argument, &raw mut number);
        let called = sys::napi_make_callback(
            env.raw(),
            ptr::null_mut(),
            global,
            function.raw(),
            1,
            &raw const number,
            &raw mut answer,
        );
        if called == sys::Status::napi_pending_exception {
            let mut error = ptr::null_mut();
            sys::napi_get_and_clear_last_exception(env.raw(), &raw mut error);
            sys::napi_fatal_exception(env.raw(), error);
        }
    }
    Ok(())
}
