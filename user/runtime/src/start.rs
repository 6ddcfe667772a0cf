//! From the first instruction to `main`.
//!
//! May touch: the stack as the kernel left it, once.
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
use crate::task::Priority;
use crate::{fatal, shared, sync, trace, worker};

/// Marks the program as a native one. The link script keeps it.
#[used]
#[unsafe(link_section = ".note.cops")]
static NOTE: Note = Note::CURRENT;

/// The scheduler's functions in the vDSO.
static CORE: spin::Once<CoreTable> = spin::Once::new();

/// What `#[cops::main]` makes of the program's `main`.
pub type Main = Pin<Box<dyn Future<Output = ExitCode> + Send>>;

unsafe extern "Rust" {
    /// Provided by `#[cops::main]`.
    safe fn _cops_main(arguments: Arguments) -> Main;
}

/// The first virtual CPU comes here with the address of the argument vector.
pub(crate) extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: what the kernel leaves there is laid out as on Linux.
    let (arguments, auxiliary) = unsafe { read_stack(stack) };
    let pages = [auxiliary.process_page, auxiliary.ring, auxiliary.system_page];
    // SAFETY: once, first, with the auxiliary vector's addresses.
    if let Err(reason) = unsafe { shared::install(pages) } {
        fatal(format_args!("the kernel's pages are of no use: {reason:?}"));
    }
    // SAFETY: once, first, with the auxiliary vector's address.
    unsafe { shared::install_trace(auxiliary.trace) };
    // SAFETY: the kernel maps the whole vDSO there for as long as the process lives.
    match unsafe { CoreTable::from_image(core::ptr::with_exposed_provenance(auxiliary.vdso)) } {
        Ok(table) if auxiliary.vdso != 0 => trace::install(CORE.call_once(|| table)),
        Ok(_) => fatal(format_args!("the kernel maps no vDSO")),
        Err(error) => fatal(format_args!("the vDSO is of no use: {error}")),
    }
    sync::install();
    worker::start_executor();
    worker::become_worker(0);
    // An explicit runner's `main` is called here, outside of coroutines, and ends the process.
    let main = _cops_main(arguments);
    crate::task::spawn(async { exit(main.await.0) }, Priority::DEFAULT);
    worker::run(0)
}

/// The addresses in the auxiliary vector that this library needs; 0 where the kernel gave none.
#[derive(Clone, Copy, Debug, Default)]
struct Auxiliary {
    vdso: usize,
    process_page: usize,
    ring: usize,
    system_page: usize,
    trace: usize,
}

/// # Safety
/// `stack` points to: the count of arguments, so many pointers to strings, null, pointers to the environment, null,
/// pairs of the auxiliary vector, the last of them of key 0. All of that stays as it is.
unsafe fn read_stack(stack: *const usize) -> (Arguments, Auxiliary) {
    // SAFETY: the caller's promise, for each step further.
    unsafe {
        let count = *stack;
        let first = stack.add(1);
        let strings = core::slice::from_raw_parts(first.cast::<*const c_char>(), count);
        let mut next = first.add(count + 1);
        while *next != 0 {
            next = next.add(1);
        }
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
        let strings: Vec<&'static CStr> = strings.iter().map(|&string| CStr::from_ptr(string)).collect();
        (Arguments { strings: strings.into_iter() }, auxiliary)
    }
}

/// The arguments the program was started with, the program's own name first.
#[derive(Clone, Debug)]
pub struct Arguments {
    strings: alloc::vec::IntoIter<&'static CStr>,
}

impl Arguments {
    /// The next argument as the bytes it is.
    pub fn next_bytes(&mut self) -> Option<&'static [u8]> {
        self.strings.next().map(CStr::to_bytes)
    }
}

impl Iterator for Arguments {
    type Item = &'static str;

    /// The next argument.
    ///
    /// # Panics
    /// If it is not UTF-8; use [`Arguments::next_bytes`] where that is to be expected.
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
