//! The scenarios: every system call that can allocate, and the network.
//!
//! A scenario uses a result only to continue with it, because any call may fail here.

use alloc::boxed::Box;
use alloc::vec;
use core::future::Future;
use core::pin::Pin;

use cops::abi::file::{Status, control, open as open_flags};
use cops::abi::socket::{ADDRESS_BYTES_MAX, AF_INET, SOCK_STREAM};
use cops::abi::syscall::{self as number, AT_FDCWD, futex, map_flags, protection, signal};
use cops::io::{AsFd, Read, Write, pipe};
use cops::model::{KernelModel, set_kernel_model};
use cops::net::{Ipv4Addr, TcpListener, TcpStream};
use cops::process;
use cops::task::{self, Priority};
use cops::thread::Builder;
use cops::time::{Duration, sleep, timeout};

use crate::{alarms, call};

/// A way to use the kernel.
pub struct Scenario {
    pub name: &'static str,
    pub run: fn() -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

macro_rules! scenarios {
    ($($name:ident,)*) => {
        pub const SCENARIOS: &[Scenario] =
            &[$(Scenario { name: stringify!($name), run: || Box::pin($name()) }),*];
    };
}

scenarios! {
    files,
    many_files,
    descriptors,
    several_buffers,
    names,
    contents,
    pipes,
    readiness,
    calls,
    cancelled_calls,
    memory,
    futexes,
    children,
    copies,
    programs,
    alarms,
    virtual_cpus,
    network,
    blocked_threads,
    polled_calls,
    peer_addresses,
    tracing,
}

/// Longer than any step takes, unless it waits for something that a failure has prevented.
const MOMENT: Duration = Duration::from_millis(500);

fn open(path: &core::ffi::CStr) -> Option<usize> {
    call(number::OPENAT, [AT_FDCWD as usize, path.as_ptr().addr(), 0]).ok()
}

async fn files() {
    let mut bytes = [0u8; 512];
    for path in [c"/etc/init", c"/", c"/bin/../etc/./init", c"/none"] {
        if let Some(file) = open(path) {
            let _ = call(number::READ, [file, bytes.as_mut_ptr().addr(), bytes.len()]);
            let _ = call(number::GETDENTS64, [file, bytes.as_mut_ptr().addr(), bytes.len()]);
            let _ = call(number::LSEEK, [file, 0, 0]);
            let _ = call(number::CLOSE, [file]);
        }
    }
}

async fn many_files() {
    // More than a chunk of the table holds.
    for _ in 0..140 {
        let _ = open(c"/etc/init");
    }
}

async fn descriptors() {
    let Some(file) = open(c"/etc/init") else { return };
    for number in [200, 32_000] {
        let _ = call(number::DUP3, [file, number, 0]);
        let _ = call(number::FCNTL, [file, control::DUPLICATE, number]);
    }
    let _ = call(number::DUP, [file]);
    let mut bytes = [0u8; Status::BYTES];
    let place = bytes.as_mut_ptr().addr();
    let path = c"/etc/init".as_ptr().addr();
    let _ = call(number::FSTAT, [file, place]);
    let _ = call(number::NEWFSTATAT, [AT_FDCWD as usize, path, place, 0]);
    let _ = call(number::FACCESSAT, [AT_FDCWD as usize, path, 4]);
}

async fn several_buffers() {
    let Ok((reader, writer)) = pipe() else { return };
    let ends = [&reader, &writer].map(|end| end.as_fd().raw() as usize);
    let mut data = vec![7u8; 9000];
    let place = data.as_mut_ptr().addr();
    let list = [place, 5000, place, 4000];
    let _ = call(number::WRITEV, [ends[1], list.as_ptr().addr(), 2]);
    let _ = call(number::READV, [ends[0], list.as_ptr().addr(), 2]);
    if let Some(file) = open(c"/etc/init") {
        let _ = call(number::PREAD64, [file, place, 100, 0]);
    }
}

/// Calls with a directory and a path, and more arguments.
fn at(number: usize, path: &core::ffi::CStr, more: [usize; 2]) -> Option<usize> {
    call(number, [AT_FDCWD as usize, path.as_ptr().addr(), more[0], more[1]]).ok()
}

const WRITABLE: usize = (open_flags::CREATE | open_flags::READ_WRITE) as usize;

async fn names() {
    let _ = at(number::MKDIRAT, c"/tmp/starve", [0o777, 0]);
    let _ = call(number::CHDIR, [c"/tmp/starve".as_ptr().addr()]);
    for name in [c"a", c"b", c"c"] {
        if let Some(file) = at(number::OPENAT, name, [WRITABLE, 0o666]) {
            let _ = call(number::CLOSE, [file]);
        }
    }
    let here = AT_FDCWD as usize;
    let [a, b, d] = [c"a", c"b", c"d"].map(|name| name.as_ptr().addr());
    let _ = call(number::SYMLINKAT, [a, here, d]);
    let _ = call(number::LINKAT, [here, a, here, c"e".as_ptr().addr(), 0]);
    let _ = call(number::RENAMEAT2, [here, a, here, b, 0]);
    let _ = call(number::RENAMEAT2, [here, b, here, c"f".as_ptr().addr(), 0]);
    let mut bytes = [0u8; 600];
    let place = bytes.as_mut_ptr().addr();
    let _ = call(number::GETCWD, [place, 600]);
    let _ = at(number::READLINKAT, c"d", [place, 600]);
    let _ = at(number::NEWFSTATAT, c"d", [place, 0]);
    let _ = call(number::STATFS, [c"/tmp".as_ptr().addr(), place]);
    if let Some(directory) = at(number::OPENAT, c".", [0, 0]) {
        let _ = call(number::GETDENTS64, [directory, place, 600]);
        let _ = call(number::FCHDIR, [directory]);
    }
    // A path of more components than a portion walks.
    let _ =
        at(number::FACCESSAT, c"./../starve/../starve/../starve/../starve/../starve/../f", [0, 0]);
    let _ = call(number::CHDIR, [c"/".as_ptr().addr()]);
    for name in [c"a", c"b", c"c", c"d", c"e", c"f"] {
        let mut path = alloc::string::String::from("/tmp/starve/");
        path.push_str(name.to_str().unwrap_or_default());
        if let Ok(path) = alloc::ffi::CString::new(path) {
            let _ = at(number::UNLINKAT, &path, [0, 0]);
        }
    }
    // Each call may be the one that fails, so the directory may have entries of a failed one.
    let _ = at(number::UNLINKAT, c"/tmp/starve", [0x200, 0]);
}

async fn contents() {
    let data = vec![7u8; 9000];
    let place = data.as_ptr().addr();
    let Some(file) = at(number::OPENAT, c"/tmp/contents", [WRITABLE, 0o666]) else { return };
    // The first of the two may fail.
    for _ in 0..2 {
        let _ = at(number::UNLINKAT, c"/tmp/contents", [0, 0]);
    }
    for offset in [0, 4096, 1 << 20, 1 << 30] {
        let _ = call(number::PWRITE64, [file, place, data.len(), offset]);
    }
    for length in [1 << 20, 5000, 0] {
        let _ = call(number::FTRUNCATE, [file, length]);
    }
    let _ = call(number::WRITE, [file, place, data.len()]);
    let _ = call(number::FSYNC, [file]);
    if let Some(null) = open(c"/dev/null") {
        let _ = call(number::READ, [null, place, 1]);
    }
}

async fn pipes() {
    let data = vec![7u8; 20_000];
    let mut place = vec![0u8; 20_000];
    for size in [1, 600, 20_000] {
        let Ok((mut reader, mut writer)) = pipe() else { continue };
        // More than the pipe holds.
        for _ in 0..5 {
            let _ = timeout(Duration::from_millis(2), writer.write(&data[..size])).await;
        }
        for _ in 0..5 {
            let _ = timeout(Duration::from_millis(2), reader.read(&mut place[..size])).await;
        }
        drop(writer);
        let _ = timeout(MOMENT, reader.read(&mut place)).await;
    }
}

async fn readiness() {
    let time = [0u64, 3_000_000];
    let mut polled = vec![0u64; 40];
    let mut events = [0u64; 32];
    let [time, into] =
        [time.as_ptr(), events.as_mut_ptr().cast_const()].map(|at| at.expose_provenance());
    let Ok(instance) = call(number::EPOLL_CREATE1, [0]) else { return };
    for place in &mut polled {
        let Ok(counter) = call(number::EVENTFD2, [0, 0]) else { continue };
        *place = counter as u64 | 1 << 32;
        let entry = [1u64, 7];
        let _ = call(number::EPOLL_CTL, [instance, 1, counter, entry.as_ptr().expose_provenance()]);
        // Both directions, of which only one was armed before.
        let entry = [5u64, 8];
        let _ = call(number::EPOLL_CTL, [instance, 3, counter, entry.as_ptr().expose_provenance()]);
        let _ = call(number::EPOLL_CTL, [instance, 3, counter, into]);
    }
    let at = polled.as_mut_ptr().expose_provenance();
    let _ = call(number::PPOLL, [at, polled.len(), time, 0, 0]);
    let _ = call(number::EPOLL_PWAIT, [instance, into, 4, 2, 0]);
    let mut set = [u64::MAX >> 40, 0];
    let _ = call(number::PSELECT6, [24, set.as_mut_ptr().expose_provenance(), 0, 0, time, 0]);
    let _ = call(number::CLOSE, [instance]);
}

async fn calls() {
    for _ in 0..70 {
        task::spawn(sleep(Duration::from_millis(3)), Priority::DEFAULT);
    }
    let Ok((mut reader, mut writer)) = pipe() else { return };
    task::spawn(
        async move {
            sleep(Duration::from_millis(1)).await;
            let _ = writer.write(&[1]).await;
        },
        Priority::DEFAULT,
    );
    let mut byte = [0];
    let _ = timeout(MOMENT, reader.read(&mut byte)).await;
    sleep(Duration::from_millis(4)).await;
}

async fn cancelled_calls() {
    let Ok((mut reader, _writer)) = pipe() else { return };
    let mut byte = [0];
    for _ in 0..4 {
        let _ = timeout(Duration::from_micros(200), reader.read(&mut byte)).await;
    }
}

async fn futexes() {
    let word = 0u32;
    let at = (&raw const word).expose_provenance();
    let time = [0u64, 200_000];
    let time = time.as_ptr().expose_provenance();
    for _ in 0..3 {
        let _ = call(number::FUTEX, [at, futex::WAIT, 0, time, 0, 0]);
        crate::start_and_end_a_thread();
    }
}

async fn memory() {
    const PAGES: usize = 40;
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    let Ok(start) = call(number::MMAP, [0, PAGES * 4096, rights, flags, usize::MAX, 0]) else {
        return;
    };
    for page in 0..PAGES {
        // The kernel accesses the page, and reports if it cannot be allocated.
        let _ = call(number::GETRANDOM, [start + page * 4096, 8, 0]);
    }
    for page in (0..PAGES).step_by(2) {
        let _ = call(number::MPROTECT, [start + page * 4096, 4096, protection::READ]);
    }
    for page in (0..PAGES).step_by(3) {
        let _ = call(number::MUNMAP, [start + page * 4096, 4096]);
    }
    let _ = call(number::MUNMAP, [start, PAGES * 4096]);
}

async fn children() {
    if let Ok(mut child) = process::spawn("/bin/starve", &["--one", "none", "1"]) {
        let _ = timeout(MOMENT, child.wait()).await;
    }
    if let Ok(mut child) = process::spawn("/bin/copy", &[""; 0]) {
        let _ = child.kill();
        let _ = timeout(MOMENT, child.wait()).await;
    }
    let _ = process::spawn("/bin/none", &["none"]);
    let _ = process::lower_ceiling(Priority::DEFAULT);
}

/// A copy of this process, with memory that both write to and a read in flight.
async fn copies() {
    let Ok((mut reader, _writer)) = pipe() else { return };
    let mut memory = vec![1u8; 40_000];
    let mut place = vec![0u8; 5_000];
    let _ = timeout(Duration::from_micros(200), reader.read(&mut place)).await;
    let flags = usize::from(signal::SIGCHLD);
    match call(number::CLONE, [flags, 0, 0, 0, 0]) {
        Ok(0) => {
            memory.fill(2);
            loop {
                let _ = call(number::EXIT_GROUP, [usize::from(memory[39_999])]);
            }
        }
        Ok(child) => {
            memory.fill(3);
            let _ = call(number::WAIT4, [child, 0, 0, 0]);
        }
        Err(_) => {}
    }
}

/// Another program in this process, or, if there is no memory for it, this one goes on.
async fn programs() {
    let flags = usize::from(signal::SIGCHLD);
    match call(number::CLONE, [flags, 0, 0, 0, 0]) {
        Ok(0) => {
            // It ends at once, because there is no scenario of this name.
            let words = [c"/bin/starve", c"--one", c"none", c"1"].map(|word| word.as_ptr().addr());
            let words = [words[0], words[1], words[2], words[3], 0];
            let list = words.as_ptr().addr();
            let _ = call(number::EXECVE, [words[0], list, list]);
            loop {
                let _ = call(number::EXIT_GROUP, [9]);
            }
        }
        Ok(child) => {
            let _ = call(number::WAIT4, [child, 0, 0, 0]);
        }
        Err(_) => {}
    }
}

async fn alarms() {
    match call(number::CLONE, [usize::from(signal::SIGCHLD), 0, 0, 0, 0]) {
        Ok(0) => {
            let words = [alarms::PATH.as_ptr().addr(), 0];
            let list = words.as_ptr().addr();
            let _ = call(number::EXECVE, [words[0], list, list + 8]);
            loop {
                let _ = call(number::EXIT_GROUP, [9]);
            }
        }
        Ok(child) => {
            let mut status = 0u32;
            let place = core::ptr::from_mut(&mut status).addr();
            // The first of the two may fail.
            for _ in 0..2 {
                let _ = call(number::WAIT4, [child, place, 0, 0]);
            }
            if status == u32::from(alarms::STILL_ON) << 8 {
                crate::end_as_broken();
            }
        }
        Err(_) => {}
    }
}

extern "C" fn end_at_once(_cpu: usize) -> ! {
    loop {
        let _ = call(number::EXIT, [0]);
    }
}

async fn virtual_cpus() {
    let _ = call(number::COPS_ALLOC_CPU, [4, end_at_once as *const () as usize]);
    let _ = call(number::COPS_UNPARK, [1]);
    sleep(Duration::from_millis(1)).await;
}

async fn network() {
    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { return };
    let Ok(address) = listener.local_address() else { return };
    task::spawn(
        async move {
            let Ok(Ok(mut server)) = timeout(MOMENT, listener.accept()).await else { return };
            let mut bytes = vec![0u8; 6_000];
            let Ok(Ok(1..)) = timeout(MOMENT, server.read(&mut bytes)).await else { return };
            let Ok(mut server) = server.into_split().0.incoming(1000) else { return };
            while let Ok(Ok(1..)) = timeout(MOMENT, server.read(&mut bytes)).await {}
        },
        Priority::DEFAULT,
    );
    if let Ok(Ok(mut client)) = timeout(MOMENT, TcpStream::connect(address)).await {
        let data = vec![1u8; 12_000];
        let _ = timeout(MOMENT, client.write_all(&data)).await;
        let _ = client.shutdown(cops::net::Shutdown::Write);
        let _ = timeout(MOMENT, client.read(&mut [0])).await;
    }
}

/// A connection to this process itself.
async fn connection() -> Option<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let address = listener.local_address().ok()?;
    let client = timeout(MOMENT, TcpStream::connect(address)).await.ok()?.ok()?;
    let server = timeout(MOMENT, listener.accept()).await.ok()?.ok()?;
    Some((client, server))
}

/// A thread that blocks in the kernel, twice.
async fn blocked_threads() {
    let Some((mut client, server)) = connection().await else { return };
    if set_kernel_model(KernelModel::Threads).is_err() {
        return;
    }
    let blocked = move || while let Ok(1..) = cops::read!(server.as_fd(), &mut [0; 8]) {};
    if Builder::new().spawn(blocked).is_err() {
        return;
    }
    for _ in 0..2 {
        sleep(Duration::from_millis(1)).await;
        let _ = timeout(MOMENT, client.write_all(&[1])).await;
    }
    // The thread is asleep when the process ends.
    sleep(Duration::from_millis(1)).await;
}

async fn polled_calls() {
    let Some((mut client, mut server)) = connection().await else { return };
    if set_kernel_model(KernelModel::Polling).is_err() {
        return;
    }
    task::spawn(
        async move { while let Ok(Ok(1..)) = timeout(MOMENT, server.read(&mut [0; 8])).await {} },
        Priority::DEFAULT,
    );
    for _ in 0..2 {
        sleep(Duration::from_millis(1)).await;
        let _ = timeout(MOMENT, client.write_all(&[1])).await;
    }
}

/// The library does not ask `accept` for the peer's address. (This socket does not listen, so the
/// call does not wait.)
async fn peer_addresses() {
    let Ok(socket) = call(number::SOCKET, [usize::from(AF_INET), SOCK_STREAM, 0]) else { return };
    let mut address = [0u8; ADDRESS_BYTES_MAX];
    let mut length = (address.len() as u32).to_le_bytes();
    for accept in [number::ACCEPT, number::ACCEPT4] {
        let out = [socket, address.as_mut_ptr().addr(), length.as_mut_ptr().addr()];
        let _ = call(accept, out);
    }
    let _ = call(number::CLOSE, [socket]);
}

async fn tracing() {
    use cops::abi::trace::operation;
    let _ = call(number::COPS_TRACE, [operation::CONTROL, 1]);
    if let Ok(mut child) = process::spawn("/bin/starve", &["--one", "none", "1"]) {
        let _ = timeout(MOMENT, child.wait()).await;
    }
    let _ = call(number::COPS_TRACE, [operation::CONTROL, 0]);
}
