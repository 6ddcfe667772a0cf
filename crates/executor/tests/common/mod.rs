//! A host for core executors in tests: memory that can run out and is freed in the end, and a
//! record of the hooks that were called.
#![allow(unsafe_code, dead_code)]

pub mod random;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use cops_executor::core::Hooks;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Notify(u32),
    Preempt(u32),
}

pub struct Host {
    /// Pointers, not addresses: Miri follows them.
    blocks: Mutex<Vec<(AtomicPtr<u8>, Layout)>>,
    events: Mutex<Vec<Event>>,
    pub bytes_left: AtomicUsize,
}

impl Host {
    pub fn new() -> Box<Host> {
        Box::new(Host {
            blocks: Mutex::new(Vec::new()),
            events: Mutex::new(Vec::new()),
            bytes_left: AtomicUsize::new(usize::MAX),
        })
    }

    pub fn hooks(&self) -> Hooks {
        let context = ptr::from_ref(self).cast_mut().cast();
        Hooks {
            context,
            grow,
            release,
            notify,
            preempt: Some(preempt),
            external: None,
            relax: None,
        }
    }

    /// What was called since the last time.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for (mut memory, layout) in self.blocks.get_mut().unwrap().drain(..) {
            // SAFETY: from `grow`; the executor went before its host.
            unsafe { dealloc(*memory.get_mut(), layout) };
        }
    }
}

fn host<'a>(context: *mut ()) -> &'a Host {
    // SAFETY: `Host::hooks` made the context, and tests keep the host as long as its executor.
    unsafe { &*context.cast() }
}

unsafe extern "C" fn grow(context: *mut (), bytes: usize) -> *mut u8 {
    let host = host(context);
    let taken = host
        .bytes_left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
    if taken.is_err() {
        return ptr::null_mut();
    }
    let layout = Layout::from_size_align(bytes, 64).unwrap();
    // SAFETY: the core never requests zero bytes, which is all that `alloc_zeroed` requires.
    let memory = unsafe { alloc_zeroed(layout) };
    host.blocks.lock().unwrap().push((AtomicPtr::new(memory), layout));
    memory
}

unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}

unsafe extern "C" fn notify(context: *mut (), worker: u32) {
    host(context).events.lock().unwrap().push(Event::Notify(worker));
}

unsafe extern "C" fn preempt(context: *mut (), worker: u32) {
    host(context).events.lock().unwrap().push(Event::Preempt(worker));
}

/// A panic would only end the coroutine that finds the fault, or cannot leave a poll: ends the
/// process.
pub fn require(holds: bool, rule: &str) {
    if !holds {
        eprintln!("broken: {rule}");
        std::process::abort();
    }
}
