//! What a process must not do with memory. A separate process makes each forbidden access, and the
//! kernel must end it.
#![allow(unsafe_code)]

use core::arch::asm;
use core::hint::black_box;
use core::ptr::with_exposed_provenance_mut;

use cops::abi::layout::{PAGE_BYTES, PROCESS_PAGE, STACK_TOP, SYSTEM_PAGE, VDSO};
use cops::abi::syscall::{MPROTECT, MUNMAP, protection};
use cops::process::ExitCode;

use crate::harness::{Outcome, run};
use crate::raw;
use crate::tests;

tests! { memory:
    fault_program,
    kernel_memory,
    addresses_of_no_region,
    write_xor_execute,
    shared_pages,
    stack_guard,
    changed_rights,
    privileged_instructions,
    vdso_is_executable,
    fresh_memory_is_zero,
}

/// First argument of this program for a process that does something forbidden.
pub const MISBEHAVE: &str = "--misbehave";

const SIGILL: u8 = 128 + 4;
const SIGTRAP: u8 = 128 + 5;
const SIGSEGV: u8 = 128 + 11;

/// Checks that a process that does `case` ends with `status`.
async fn dies(case: &str, status: u8) -> Outcome {
    let ended = run(&[MISBEHAVE, case]).await?;
    crate::check!(ended.shell_code() == status, "{case}: {ended} instead of status {status}");
    Ok(())
}

async fn die(cases: &[&str], status: u8) -> Outcome {
    for case in cases {
        dies(case, status).await?;
    }
    Ok(())
}

async fn fault_program() -> Outcome {
    let mut child = cops::process::spawn("/bin/fault", &[] as &[&str])?;
    let status = child.wait().await?;
    crate::check_equal!(status.shell_code(), SIGSEGV, "status of /bin/fault");
    Ok(())
}

async fn kernel_memory() -> Outcome {
    die(
        &["read-kernel", "write-kernel", "execute-kernel", "read-kernel-stack", "write-devices"],
        SIGSEGV,
    )
    .await
}

async fn addresses_of_no_region() -> Outcome {
    die(
        &[
            "read-null",
            "write-null",
            "execute-null",
            "read-not-canonical",
            "read-hole",
            "execute-hole",
        ],
        SIGSEGV,
    )
    .await
}

async fn write_xor_execute() -> Outcome {
    die(
        &[
            "write-text",
            "write-constants",
            "execute-constants",
            "execute-data",
            "execute-stack",
            "execute-heap",
        ],
        SIGSEGV,
    )
    .await
}

async fn shared_pages() -> Outcome {
    die(
        &["write-vdso", "write-system-page", "execute-system-page", "execute-process-page"],
        SIGSEGV,
    )
    .await
}

async fn stack_guard() -> Outcome {
    die(&["overflow-stack", "read-above-stack"], SIGSEGV).await
}

async fn changed_rights() -> Outcome {
    die(&["write-protected", "read-unmapped", "read-forbidden"], SIGSEGV).await
}

async fn privileged_instructions() -> Outcome {
    die(&["read-sstatus", "write-satp", "sret", "sfence", "illegal"], SIGILL).await?;
    die(&["breakpoint"], SIGTRAP).await
}

/// Its functions run, otherwise no test would; its first bytes are an ELF header.
async fn vdso_is_executable() -> Outcome {
    // SAFETY: the kernel maps the vDSO at this address, readable.
    let magic = unsafe { with_exposed_provenance_mut::<[u8; 4]>(VDSO).read_volatile() };
    crate::check_equal!(magic, *b"\x7fELF", "the vDSO's first bytes");
    Ok(())
}

/// No page contains what a process had stored in it before.
async fn fresh_memory_is_zero() -> Outcome {
    const PAGES: usize = 64;
    const BYTES: usize = PAGES * PAGE_BYTES;
    for round in 0..20 {
        let place = raw::map(PAGES)?;
        for offset in (0..BYTES).step_by(8) {
            let word = with_exposed_provenance_mut::<u64>(place + offset);
            // SAFETY: the kernel has just mapped this page for the test, readable and writable, and
            // no reference to it exists.
            let value = unsafe { word.read_volatile() };
            crate::check!(value == 0, "round {round}, offset {offset}: {value:#x}");
            // SAFETY: the kernel has just mapped this page for the test, readable and writable, and
            // no reference to it exists.
            unsafe { word.write_volatile(0x5555_aaaa_0000_ffff) };
        }
        raw::call(MUNMAP, [place, BYTES])?;
    }
    Ok(())
}

/// Does one forbidden thing. Returning from it means that the kernel did not stop it.
pub fn misbehave(case: &str) -> ExitCode {
    // SAFETY: deliberately unsound: the kernel must end this process before any effect. If it does
    // not, the process ends itself with a code that says so.
    unsafe { commit(case) }
    ExitCode(1)
}

/// Start of the kernel's image, of its stacks, and of the devices.
const KERNEL_TEXT: usize = 0xffff_ffc0_8020_0000;
const KERNEL_STACKS: usize = 0xffff_fff0_0000_0000;
const DEVICES: usize = 0xffff_ffc0_1000_0000;
const HOLE: usize = 0x20_0000_0000 + 0x17_0000_0000;

static CONSTANT: u32 = RETURN;
static mut DATA: u32 = RETURN;
/// The instruction `ret`, twice.
const RETURN: u32 = 0x8082_8082;

unsafe fn commit(case: &str) {
    let read = |address: usize| {
        // SAFETY: deliberately unsound, see `misbehave`: the kernel must end the process.
        black_box(unsafe { with_exposed_provenance_mut::<u8>(address).read_volatile() });
    };
    // SAFETY: deliberately unsound, see `misbehave`: the kernel must end the process.
    let write =
        |address: usize| unsafe { with_exposed_provenance_mut::<u8>(address).write_volatile(0x82) };
    // SAFETY: deliberately unsound, see `misbehave`: the kernel must end the process.
    let execute = |address: usize| unsafe { asm!("jalr {}", in(reg) address, clobber_abi("C")) };
    let text = misbehave as *const () as usize;
    let page = raw::map(1).unwrap_or(0);
    match case {
        "read-kernel" => read(KERNEL_TEXT),
        "write-kernel" => write(KERNEL_TEXT),
        "execute-kernel" => execute(KERNEL_TEXT),
        "read-kernel-stack" => read(KERNEL_STACKS + 4 * PAGE_BYTES),
        "write-devices" => write(DEVICES),
        "read-null" => read(0),
        "write-null" => write(8),
        "execute-null" => execute(0),
        "read-not-canonical" => read(1 << 40),
        "read-hole" => read(HOLE),
        "execute-hole" => execute(HOLE),
        "write-text" => write(text),
        "write-constants" => write((&raw const CONSTANT).addr()),
        "execute-constants" => execute((&raw const CONSTANT).addr()),
        "execute-data" => execute((&raw mut DATA).addr()),
        "execute-stack" => {
            let instruction = black_box(RETURN);
            execute((&raw const instruction).addr());
        }
        "execute-heap" => {
            write(page);
            write(page + 1);
            execute(page);
        }
        "write-vdso" => write(VDSO),
        "write-system-page" => write(SYSTEM_PAGE),
        "execute-system-page" => execute(SYSTEM_PAGE),
        "execute-process-page" => execute(PROCESS_PAGE),
        "overflow-stack" => drop(black_box(recurse(0))),
        "read-above-stack" => read(STACK_TOP),
        "write-protected" => {
            write(page);
            let _ = raw::call(MPROTECT, [page, PAGE_BYTES, protection::READ]);
            read(page);
            write(page);
        }
        "read-unmapped" => {
            write(page);
            let _ = raw::call(MUNMAP, [page, PAGE_BYTES]);
            read(page);
        }
        "read-forbidden" => {
            write(page);
            let _ = raw::call(MPROTECT, [page, PAGE_BYTES, 0]);
            read(page);
        }
        // SAFETY: a privileged instruction traps, and the kernel must end the process (see
        // `misbehave`).
        "read-sstatus" => unsafe { asm!("csrr {}, sstatus", out(reg) _) },
        // SAFETY: a privileged instruction traps, and the kernel must end the process (see
        // `misbehave`).
        "write-satp" => unsafe { asm!("csrw satp, zero") },
        // SAFETY: a privileged instruction traps, and the kernel must end the process (see
        // `misbehave`).
        "sret" => unsafe { asm!("sret") },
        // SAFETY: a privileged instruction traps, and the kernel must end the process (see
        // `misbehave`).
        "sfence" => unsafe { asm!("sfence.vma") },
        // SAFETY: an illegal instruction traps, and the kernel must end the process (see
        // `misbehave`).
        "illegal" => unsafe { asm!("unimp") },
        // SAFETY: a breakpoint traps, and the kernel must end the process (see `misbehave`).
        "breakpoint" => unsafe { asm!("ebreak") },
        _ => {}
    }
}

/// Exhausts the stack.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + frame[(depth % 64) as usize] }
}
