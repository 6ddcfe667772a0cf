//! From the first instruction to `main`.
//!
//! May touch: the initial stack, once.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use core::future::Future;
use core::pin::Pin;

use cops_abi::auxv;
use cops_abi::note::Note;
use cops_executor::image::CoreTable;

use crate::process::{ExitCode, exit};
use crate::{call, fatal, shared, sync, trace, worker};

/// Marks the program as a native one. The linker script keeps it.
#[used]
#[unsafe(link_section = ".note.cops")]
static NOTE: Note = Note::CURRENT;

/// The scheduler's functions in the vDSO.
static CORE: spin::Once<CoreTable> = spin::Once::new();

/// The environment, as `NAME=value`.
static ENVIRONMENT: spin::Once<Vec<&'static CStr>> = spin::Once::new();

/// The strings of the environment.
pub(crate) fn environment() -> impl Iterator<Item = &'static [u8]> {
    ENVIRONMENT.get().into_iter().flatten().map(|string| string.to_bytes())
}

/// The type of the program's `main`, as converted by `#[cops::main]`.
pub type Main = Pin<Box<dyn Future<Output = ExitCode> + Send>>;

unsafe extern "Rust" {
    /// Defined by `#[cops::main]`.
    safe fn _cops_main(arguments: Arguments) -> Main;
}

/// The first virtual CPU starts here with the address of the argument vector.
pub(crate) extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: `_start` passes the initial stack pointer, and the kernel lays out the initial stack
    // as Linux does.
    let (arguments, auxiliary) = unsafe { read_stack(stack) };
    let pages = [auxiliary.process_page, auxiliary.ring, auxiliary.system_page];
    // SAFETY: the addresses are from the auxiliary vector, and this is the first and only call.
    if let Err(reason) = unsafe { shared::install(pages) } {
        fatal(format_args!("cannot use the pages shared with the kernel: {reason:?}"));
    }
    // SAFETY: the address is from the auxiliary vector, and this is the first and only call.
    unsafe { shared::install_trace(auxiliary.trace) };
    // SAFETY: the address is from the auxiliary vector; the kernel maps the whole vDSO there as
    // long as the process lives.
    match unsafe { CoreTable::from_image(core::ptr::with_exposed_provenance(auxiliary.vdso)) } {
        Ok(table) if auxiliary.vdso != 0 => trace::install(CORE.call_once(|| table)),
        Ok(_) => fatal(format_args!("the kernel has not mapped a vDSO")),
        Err(error) => fatal(format_args!("cannot use the vDSO: {error}")),
    }
    sync::install();
    call::install();
    worker::start_executor();
    worker::become_worker(0);
    // The `main` of an explicit runner is called here, outside of coroutines, and ends the process.
    let main = _cops_main(arguments);
    crate::task::spawn_main(async { exit(main.await.0) });
    worker::run(0)
}

/// The addresses in the auxiliary vector that this library needs; 0 for those that are missing.
#[derive(Clone, Copy, Debug, Default)]
struct Auxiliary {
    vdso: usize,
    process_page: usize,
    ring: usize,
    system_page: usize,
    trace: usize,
}

/// Parses the initial stack.
///
/// # Safety
/// `stack` points to: the number of arguments, that many pointers to strings, null, pointers to the
/// environment, null, pairs of the auxiliary vector, the last of them with key 0. All of that stays
/// unchanged.
unsafe fn read_stack(stack: *const usize) -> (Arguments, Auxiliary) {
    // SAFETY: this function's contract describes the layout; each step stays within it.
    unsafe {
        let count = *stack;
        let first = stack.add(1);
        let strings = core::slice::from_raw_parts(first.cast::<*const c_char>(), count);
        let mut next = first.add(count + 1);
        let mut environment = Vec::new();
        while *next != 0 {
            environment.push(CStr::from_ptr(core::ptr::with_exposed_provenance(*next)));
            next = next.add(1);
        }
        ENVIRONMENT.call_once(|| environment);
        next = next.add(1);
        let mut auxiliary = Auxiliary::default();
        while *next != auxv::AT_NULL {
            let value = *next.add(1);
            match *next {
                auxv::AT_SYSINFO_EHDR => auxiliary.vdso = value,
                auxv::AT_COPS_PROCESS_PAGE => auxiliary.process_page = value,
                auxv::AT_COPS_RING => auxiliary.ring = value,
                auxv::AT_COPS_SYSTEM_PAGE => auxiliary.system_page = value,
                auxv::AT_COPS_TRACE => auxiliary.trace = value,
                _ => {}
            }
            next = next.add(2);
        }
        let strings: Vec<&'static CStr> =
            strings.iter().map(|&string| CStr::from_ptr(string)).collect();
        (Arguments { strings: strings.into_iter() }, auxiliary)
    }
}

/// The arguments that the program was started with; the first is the program's own name.
#[derive(Clone, Debug)]
pub struct Arguments {
    strings: alloc::vec::IntoIter<&'static CStr>,
}

impl Arguments {
    /// The next argument as bytes.
    pub fn next_bytes(&mut self) -> Option<&'static [u8]> {
        self.strings.next().map(CStr::to_bytes)
    }
}

impl Iterator for Arguments {
    type Item = &'static str;

    /// The next argument.
    ///
    /// # Panics
    /// If it is not UTF-8; use [`Arguments::next_bytes`] where that is possible.
    fn next(&mut self) -> Option<&'static str> {
        self.next_bytes().map(|bytes| match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => panic!("argument is not UTF-8: {error}"),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.strings.size_hint()
    }
}

impl ExactSizeIterator for Arguments {}
