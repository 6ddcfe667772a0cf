//! The interface to QEMU, version 1 of its plugin API (QEMU 7.2 to 8.2, `qemu-plugin.h`).
//!
//! Not part of the test program, which is not loaded by QEMU and so lacks its functions.
#![allow(unsafe_code)]
// The names are QEMU's.
#![allow(non_upper_case_globals)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::counts::{BlockId, Code, Counts};
use crate::options::Options;
use crate::stacks::Place;

/// A block that QEMU translates. Only QEMU knows what it contains.
#[repr(C)]
struct Translated {
    opaque: [u8; 0],
}

/// An instruction of such a block.
#[repr(C)]
struct Instruction {
    opaque: [u8; 0],
}

type PluginId = u64;
type OnTranslation = extern "C" fn(PluginId, *mut Translated);
type OnExecution = extern "C" fn(c_uint, *mut c_void);
type OnExit = extern "C" fn(PluginId, *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD: c_int = 0;

/// The version of the API that this plugin was written for. QEMU reads it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: OnTranslation);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Translated,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: *mut Instruction,
        operation: c_int,
        word: *mut c_void,
        value: u64,
    );
    fn qemu_plugin_register_atexit_cb(id: PluginId, callback: OnExit, data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const Translated) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Translated, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *const c_void;
}

/// Instructions that have begun. The translated code increments it.
static BEGUN: AtomicU64 = AtomicU64::new(0);

struct Profiler {
    counts: Counts,
    out: PathBuf,
    /// The value of [`BEGUN`] when the last block began.
    seen: u64,
}

impl Profiler {
    /// Instructions that began since the last call.
    fn begun(&mut self) -> u64 {
        let now = BEGUN.load(Relaxed);
        now - std::mem::replace(&mut self.seen, now)
    }
}

/// `None` before QEMU has loaded the plugin. The lock is never contended while the machine runs,
/// because its only hart is emulated by one thread.
static PROFILER: Mutex<Option<Profiler>> = Mutex::new(None);

/// Calls `use_it` with the profiler. A panic in here ends QEMU, so a poisoned lock is not met.
fn with_profiler(use_it: impl FnOnce(&mut Profiler)) {
    if let Ok(mut profiler) = PROFILER.lock()
        && let Some(profiler) = profiler.as_mut()
    {
        use_it(profiler);
    }
}

/// QEMU calls this when it loads the plugin. Any result but 0 makes QEMU end with an error.
///
/// # Safety
/// `argv` points to `argc` strings that end with 0, as QEMU's do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    let arguments =
        (0..argc.max(0) as usize).map(|index| unsafe { CStr::from_ptr(*argv.add(index)) });
    let arguments: Vec<_> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let Some(options) = Options::parse(&arguments) else {
        eprintln!("cops-profiler: wrong arguments: {arguments:?}");
        return 1;
    };
    let profiler =
        Profiler { counts: Counts::new(options.vector, options.mark), out: options.out, seen: 0 };
    if let Ok(mut place) = PROFILER.lock() {
        *place = Some(profiler);
    }
    // SAFETY: `id` is this plugin's. The callbacks are functions of this library, which QEMU never
    // unloads.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, ended, std::ptr::null_mut());
    }
    0
}

/// QEMU has translated a block: has its executions reported, and its instructions counted.
extern "C" fn translated(_id: PluginId, block: *mut Translated) {
    let mut code = Code::default();
    // SAFETY: `block` and its instructions exist during this callback, and the bytes of an
    // instruction are as many as its size. `BEGUN` is static; only the thread that executes the
    // translated code writes to it.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            let size = qemu_plugin_insn_size(instruction);
            let bytes = std::slice::from_raw_parts(qemu_plugin_insn_data(instruction), size);
            if index == 0 {
                code.place = Place {
                    address: qemu_plugin_insn_vaddr(instruction),
                    memory: qemu_plugin_insn_haddr(instruction) as u64,
                };
            }
            code.push(bytes);
            let word = BEGUN.as_ptr().cast();
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD, word, 1);
        }
    }
    with_profiler(|profiler| {
        let id = profiler.counts.block(code) as usize;
        let data = std::ptr::without_provenance_mut(id);
        // SAFETY: `block` exists during this callback; `data` is a number, which `executed` takes
        // as such.
        unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, executed, NO_REGISTERS, data) };
    });
}

/// The block with number `data` begins.
extern "C" fn executed(_hart: c_uint, data: *mut c_void) {
    with_profiler(|profiler| {
        let begun = profiler.begun();
        profiler.counts.begin(data.addr() as BlockId, begun);
    });
}

/// QEMU ends: writes the record.
extern "C" fn ended(_id: PluginId, _data: *mut c_void) {
    with_profiler(|profiler| {
        let begun = profiler.begun();
        let written = File::create(&profiler.out).and_then(|file| {
            let mut file = BufWriter::new(file);
            profiler.counts.finish(begun, &mut file)?;
            file.flush()
        });
        if let Err(error) = written {
            eprintln!("cops-profiler: cannot write {}: {error}", profiler.out.display());
        }
    });
}
