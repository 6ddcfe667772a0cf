//! Quotas: no program, together with its descendants, takes what others need.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use cops::abi::Errno;
use cops::abi::errno::CallResult;
use cops::abi::layout::PAGE_BYTES;
use cops::abi::socket::{ADDRESS_BYTES_MAX, AF_INET, SOCK_DGRAM, SOCK_STREAM, encode};
use cops::abi::syscall::{
    ACCEPT, BIND, CLOCK_NANOSLEEP, CONNECT, COPS_QUOTA, MUNMAP, READ, SOCKET, WRITE, WRITEV, signal,
};
use cops::io::{AsFd, Fd, Read, Write, pipe};
use cops::memory::statistics;
use cops::net::{Ipv4Addr, TcpListener, TcpStream};
use cops::process::{self, Child, ExitCode, Resource};
use cops::time::{Duration, Instant, sleep, timeout};
use cops::{inspect, task, wait};

use crate::forks::{Pipe, fork};
use crate::harness::{Failure, Outcome, errno, run, soon, start, start_tied, until};
use crate::processes::HELPER;
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { quotas:
    a_memory_hog_beside_an_innocent_process,
    many_hogs_beside_an_innocent_process,
    buffers_that_are_unmapped_are_charged,
    buffers_of_copies_are_charged,
    full_pipes_are_charged,
    connections_that_wait_are_charged,
    connections_that_are_closed_are_charged,
    a_connection_that_cannot_be_paid_for_waits,
    gathered_writes_are_charged,
    ports_are_charged_while_a_socket_is_bound,
    a_port_hog_beside_an_innocent_process,
    sleeps_by_the_thousand_beside_an_honest_sleep,
    more_descriptors_than_there_are,
    a_fork_bomb,
    lowering_a_quota,
    a_lowered_quota_stays,
    authority_over_quotas,
    everything_is_given_back,
}

/// A process that has taken all it can get signals this by setting its limit of virtual CPUs to
/// this number.
const FILLED: u64 = 3;

/// The helpers.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    Some(match arguments {
        ["hold-memory"] => hold_memory(),
        ["touch-memory", megabytes] => touch_memory(megabytes),
        ["hold-buffers"] => hold_buffers(),
        ["hold-common-buffers"] => hold_common_buffers(false),
        ["hold-copied-buffers"] => hold_common_buffers(true),
        ["hold-pipes"] => hold_pipes(),
        ["hold-ports"] => hold_ports(),
        ["hold-sleeps"] => hold_sleeps(),
        ["fork-bomb"] => fork_bomb(),
        ["attack-quotas", target] => attack(target),
        ["assert-quota"] => assert_quota(),
        _ => return None,
    })
}

/// Signals that this process has taken all it can get, and keeps it.
fn stay() -> ExitCode {
    let _ = process::set_quota(0, Resource::Cpus, FILLED);
    loop {
        let _ = cops::sleep!(Duration::from_secs(1000));
    }
}

/// Maps and accesses memory until there is no more, first in large pieces, then in small ones.
fn hold_memory() -> ExitCode {
    let mut all: Vec<Vec<u8>> = Vec::with_capacity(10_000);
    for bytes in [1 << 20, 64 << 10] {
        loop {
            let mut block = Vec::new();
            if block.try_reserve_exact(bytes).is_err() || all.len() == all.capacity() {
                break;
            }
            // Room for the growth of its own table.
            if process::quota(0, Resource::Memory).is_ok_and(|quota| quota.room < 2 * bytes as u64)
            {
                break;
            }
            block.resize(bytes, 1);
            // Keeps the compiler from removing the unused block.
            all.push(core::hint::black_box(block));
        }
    }
    stay()
}

fn touch_memory(megabytes: &str) -> ExitCode {
    let Ok(megabytes) = megabytes.parse::<usize>() else { return ExitCode(2) };
    let mut block = Vec::new();
    if block.try_reserve_exact(megabytes << 20).is_err() {
        return ExitCode(3);
    }
    block.resize(megabytes << 20, 1u8);
    ExitCode(u8::from(block.iter().any(|&byte| byte != 1)))
}

/// Pages of the largest buffer that a call in flight has.
const BUFFER_PAGES: usize = 5;

/// Makes reads that wait, each into pages that it unmaps then, until one is refused.
fn hold_buffers() -> ExitCode {
    let Ok(empty) = Pipe::new() else { return ExitCode(2) };
    while let Ok(buffer) = raw::map(BUFFER_PAGES) {
        let bytes = BUFFER_PAGES * PAGE_BYTES;
        let Asked::InFlight(_) = raw::ask(READ, [empty.reader, buffer, bytes]) else { break };
        if raw::call(MUNMAP, [buffer, bytes]).is_err() {
            return ExitCode(3);
        }
    }
    stay()
}

/// Makes writes that wait, of pages that are common to this process and a copy, which ends after
/// they have been unmapped here, or after this process has got others there by writing. Again,
/// until one is refused.
fn hold_common_buffers(writes: bool) -> ExitCode {
    let (Ok(full), Ok(empty)) = (Pipe::new(), Pipe::new()) else { return ExitCode(2) };
    let write = |at: usize, bytes: usize| raw::ask(WRITE, [full.writer, at, bytes]);
    loop {
        let Ok(quota) = process::quota(0, Resource::Memory) else { return ExitCode(3) };
        let pages = quota.room as usize / 4 / PAGE_BYTES / BUFFER_PAGES * BUFFER_PAGES;
        if pages < 100 {
            return stay();
        }
        let Ok(start) = raw::map(pages) else { return stay() };
        let bytes = pages * PAGE_BYTES;
        (start..start + bytes).step_by(PAGE_BYTES).for_each(|page| raw::poke(page, 1));
        // It waits until it is killed.
        let Ok(copy) = fork(|| u8::from(empty.wait().is_err())) else { return stay() };
        let mut is_refused = false;
        for buffer in (start..start + bytes).step_by(BUFFER_PAGES * PAGE_BYTES) {
            // The first ones fill the pipe.
            while let Asked::Done(result) = write(buffer, BUFFER_PAGES * PAGE_BYTES) {
                is_refused |= result.is_err();
                if is_refused {
                    break;
                }
            }
        }
        if writes {
            (start..start + bytes).step_by(PAGE_BYTES).for_each(|page| raw::poke(page, 2));
        }
        let unmapped = raw::call(MUNMAP, [start, bytes]);
        // The copy has ended by itself if there was no memory for its wait.
        let _ = process::kill(copy, signal::SIGKILL);
        if unmapped.is_err() || cops::wait!(Some(copy)).is_err() {
            return ExitCode(4);
        }
        if is_refused {
            return stay();
        }
    }
}

/// Fills pipes until no more can be created.
fn hold_pipes() -> ExitCode {
    task::spawn(
        async {
            let mut all = Vec::with_capacity(40_000);
            let bytes = [7; 4096];
            while let Ok((reader, mut writer)) = pipe() {
                while let Ok(Ok(_)) = timeout(Duration::from_millis(5), writer.write(&bytes)).await
                {
                }
                all.push((reader, writer));
            }
            let _ = process::set_quota(0, Resource::Cpus, FILLED);
            core::future::pending::<()>().await;
        },
        task::Priority::DEFAULT,
    );
    // The writes need another virtual CPU while this one sleeps.
    let _ = task::alloc_cpu(1);
    loop {
        let _ = cops::sleep!(Duration::from_secs(1000));
    }
}

fn hold_sleeps() -> ExitCode {
    const FOREVER: [usize; 2] = [1_000_000, 0];
    while let Asked::InFlight(_) = raw::ask(CLOCK_NANOSLEEP, [1, 0, FOREVER.as_ptr().addr()]) {}
    stay()
}

/// Starts processes that do the same, until that fails; then stays.
fn fork_bomb() -> ExitCode {
    let mut refused = 0;
    while refused < 3 {
        if start(&[HELPER, "fork-bomb"]).is_err() {
            refused += 1;
        }
    }
    stay()
}

fn attack(target: &str) -> ExitCode {
    let Ok(target) = target.parse::<usize>() else { return ExitCode(2) };
    let own = process::quota(0, Resource::Memory).map_or(0, |quota| quota.limit as usize);
    let attempts = [
        raw::call(COPS_QUOTA, [target, 0, 1, 0]),
        raw::call(COPS_QUOTA, [target, 2, 0, 0]),
        raw::call(COPS_QUOTA, [1, 0, 0, 0]),
        raw::call(COPS_QUOTA, [0, 0, own + 1, 0]),
    ];
    let not_refused = attempts.iter().position(|outcome| *outcome != Err(Errno::EPERM));
    ExitCode(not_refused.map_or(0, |attempt| 10 + attempt as u8))
}

/// Sets its limit to what it has read, again and again.
fn assert_quota() -> ExitCode {
    while let Ok(quota) = process::quota(0, Resource::Memory) {
        // Refused if it has been lowered in between.
        let _ = process::set_quota(0, Resource::Memory, quota.limit);
    }
    ExitCode::FAILURE
}

/// Waits until a process has taken all of `resource` that it can get.
async fn filled(child: &Child, resource: Resource) -> Result<u64, Failure> {
    let begin = Instant::now();
    while process::quota(child.id(), Resource::Cpus)?.limit != FILLED {
        let used = process::quota(child.id(), resource)?.used;
        check!(
            begin.elapsed() < Duration::from_secs(25),
            "{resource:?} used: {used}, and still growing"
        );
        sleep(Duration::from_millis(10)).await;
    }
    Ok(process::quota(child.id(), resource)?.used)
}

async fn innocent(megabytes: &str) -> Outcome {
    let status = run(&[HELPER, "touch-memory", megabytes]).await?;
    check_equal!((status.code(), status.signal()), (Some(0), None), "an innocent process ended");
    Ok(())
}

/// A helper that takes memory in some way is charged for it and stopped, and others still get
/// theirs.
async fn innocent_beside(helper: &str) -> Outcome {
    let hog = start_tied(&[HELPER, helper])?;
    let held = filled(&hog, Resource::Memory).await?;
    let now = statistics()?;
    check!(held > now.frames_total * 4096 / 16, "{helper} is charged for {held} bytes only");
    check!(
        now.frames_free >= now.frames_total / 2,
        "{} of {} frames are free",
        now.frames_free,
        now.frames_total
    );
    innocent(if now.frames_total > 100_000 { "8" } else { "2" }).await?;
    hog.end().await
}

async fn a_memory_hog_beside_an_innocent_process() -> Outcome {
    innocent_beside("hold-memory").await
}

async fn many_hogs_beside_an_innocent_process() -> Outcome {
    // What is guaranteed to each of 16 children, minus what the program itself uses.
    let limit = process::quota(0, Resource::Memory)?.limit;
    let floor = (limit / 64) >> 20;
    let mut hogs = Vec::new();
    for _ in 0..6 {
        hogs.push(start_tied(&[HELPER, "hold-memory"])?);
    }
    for hog in &hogs {
        filled(hog, Resource::Memory).await?;
    }
    if floor >= 3 {
        innocent("1").await?;
    } else {
        // The floor is less than this program takes by itself, but more than a small one does.
        let status =
            soon("a small program", process::spawn::<&str>("/bin/hello", &[])?.wait()).await??;
        check_equal!(
            (status.code(), status.signal()),
            (Some(0), None),
            "how a small program ended"
        );
    }
    for hog in hogs {
        hog.end().await?;
    }
    Ok(())
}

async fn buffers_that_are_unmapped_are_charged() -> Outcome {
    innocent_beside("hold-buffers").await
}

async fn buffers_of_copies_are_charged() -> Outcome {
    innocent_beside("hold-common-buffers").await?;
    innocent_beside("hold-copied-buffers").await
}

async fn full_pipes_are_charged() -> Outcome {
    innocent_beside("hold-pipes").await
}

/// A program that connects to itself, closes the clients and accepts nothing pays for what is left.
async fn connections_that_wait_are_charged() -> Outcome {
    const COUNT: usize = 20;
    const BYTES_EACH: u64 = 12 << 10;
    const ROOM: u64 = 1 << 20;
    let used = || process::quota(0, Resource::Memory).map(|quota| quota.used);
    let listener = TcpListener::bind_with_backlog((Ipv4Addr::LOCALHOST, 0), 4096)?;
    let address = listener.local_address()?;
    let client = || async move {
        let mut client = TcpStream::connect(address).await?;
        client.write_all(b"x").await
    };
    let before = used()?;
    for _ in 0..COUNT {
        soon("connect", client()).await??;
    }
    let waiting = used()?;
    check!(waiting >= before + COUNT as u64 * BYTES_EACH, "charged {before}, then {waiting}");
    // Without quota for more, no more can wait. The closed end of each is charged too.
    process::set_quota(0, Resource::Memory, waiting + ROOM)?;
    let mut more = 0;
    while let Ok(connected) = timeout(Duration::from_millis(300), client()).await {
        match connected.map_err(errno) {
            Err(Some(Errno::ENOMEM)) => break,
            connected => check!(connected.is_ok(), "connecting: {connected:?}"),
        }
        more += 1;
        check!(more <= ROOM / BYTES_EACH, "{more} connections wait without a charge");
    }
    check!(more >= ROOM / BYTES_EACH / 2, "only {more} more connections");
    // One that is accepted and closed is charged no longer, and neither are those that are left.
    // To accept it needs no quota but its own: there is none.
    process::set_quota(0, Resource::Memory, used()?)?;
    for _ in 0..2 {
        drop(soon("accept", listener.accept()).await??);
    }
    soon("connect again", client()).await??;
    drop(listener);
    let begin = Instant::now();
    // Its heap may have grown.
    while used()? > before + COUNT as u64 * BYTES_EACH / 2 {
        check!(begin.elapsed() < Duration::from_secs(10), "{} bytes of {before}", used()?);
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A program closes connections, and the peers, its accomplices, do not close theirs.
async fn connections_that_are_closed_are_charged() -> Outcome {
    const COUNT: usize = 32;
    const BYTES_EACH: u64 = 7 << 10;
    let used = || process::quota(0, Resource::Memory).map(|quota| quota.used);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_address()?;
    let before = used()?;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..COUNT {
        clients.push(soon("connect", TcpStream::connect(address)).await??);
        servers.push(soon("accept", listener.accept()).await??);
    }
    drop(clients);
    let closed = used()?;
    let all = 2 * COUNT as u64 * BYTES_EACH;
    check!(closed >= before + all, "charged {before}, then {closed}");
    // The peers close: nothing is left of either.
    drop(servers);
    let begin = Instant::now();
    while used()? > before + all / 2 {
        check!(begin.elapsed() < Duration::from_secs(10), "{} bytes of {before}", used()?);
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A copy of this process has a quota for a descriptor and not for a connection. It fails to
/// accept, and leaves the connection to this one.
async fn a_connection_that_cannot_be_paid_for_waits() -> Outcome {
    const ROOM: u64 = 4096;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let number = listener.as_fd().raw() as usize;
    let mut client = soon("connect", TcpStream::connect(listener.local_address()?)).await??;
    soon("write", client.write_all(b"x")).await??;
    let copy = fork(|| {
        let Ok(quota) = process::quota(0, Resource::Memory) else { return 2 };
        if process::set_quota(0, Resource::Memory, quota.used + ROOM).is_err() {
            return 3;
        }
        u8::from(raw::call(ACCEPT, [number, 0, 0]) != Err(Errno::ENOMEM))
    })?;
    let (_, status) = wait!(Some(copy))?;
    check!(status.success(), "the copy ended with {status}");
    let mut server = soon("accept", listener.accept()).await??;
    let mut byte = [0];
    check_equal!(soon("read", server.read(&mut byte)).await??, 1, "bytes");
    Ok(())
}

/// The kernel's copies of what calls in flight write from several places are charged.
async fn gathered_writes_are_charged() -> Outcome {
    const COUNT: usize = 64;
    const BYTES: usize = 8 << 10;
    let used = || process::quota(0, Resource::Memory).map(|quota| quota.used);
    let (_reader, writer) = pipe()?;
    let fd = writer.as_fd().raw() as usize;
    let bytes = vec![7u8; BYTES];
    let place = bytes.as_ptr().addr();
    loop {
        match raw::ask(WRITE, [fd, place, BYTES]) {
            Asked::Done(written) => _ = written?,
            Asked::InFlight(handle) => {
                check!(handle.cancel()?, "a write to a full pipe is over");
                break;
            }
        }
    }
    let (list, mut handles) = ([place, 1, place, BYTES - 1], Vec::with_capacity(COUNT));
    let before = used()?;
    for _ in 0..COUNT {
        match raw::ask(WRITEV, [fd, list.as_ptr().addr(), 2]) {
            Asked::InFlight(handle) => handles.push(handle),
            Asked::Done(result) => return Err(Failure(format!("a full pipe: {result:?}"))),
        }
    }
    let held = used()?;
    check!(held >= before + (COUNT * BYTES) as u64, "charged {before}, then {held}");
    for handle in handles {
        check!(handle.cancel()?, "a gathered write to a full pipe is over");
    }
    let after = used()?;
    check!(after <= before + (64 << 10), "charged {before}, afterwards {after}");
    Ok(())
}

async fn sleeps_by_the_thousand_beside_an_honest_sleep() -> Outcome {
    let before = statistics()?;
    let mut hogs = Vec::new();
    for _ in 0..8 {
        hogs.push(start_tied(&[HELPER, "hold-sleeps"])?);
    }
    let mut held = 0;
    for hog in &hogs {
        held += filled(hog, Resource::Calls).await?;
    }
    check!(held > 10_000, "the hogs have {held} sleeps only");
    cops::sleep!(Duration::from_millis(1))?;
    sleep(Duration::from_millis(1)).await;
    let status = run(&[HELPER, "sleep", "1"]).await?;
    check_equal!(status.code(), Some(0), "an honest sleep in another process");
    for hog in hogs {
        hog.end().await?;
    }
    let after = statistics()?;
    // The executor keeps the slots of the calls' coroutines, and the heap some free blocks. The
    // calls themselves take four times as much.
    let taken = before.frames_free.saturating_sub(after.frames_free) * 4096;
    check!(taken <= held * 64 + (1 << 20), "{taken} bytes of {held} calls did not come back");
    Ok(())
}

/// 127.0.0.1 and any port.
const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A new socket of this kind.
fn socket(kind: usize) -> Result<Fd, Failure> {
    Ok(Fd::from_raw(raw::call(SOCKET, [AF_INET.into(), kind, 0])? as i32))
}

/// Makes a call of a socket, an address and its length.
fn call_with(number: usize, socket: &Fd, address: impl Into<SocketAddr>) -> CallResult {
    let mut bytes = [0; ADDRESS_BYTES_MAX];
    let length = encode(address.into(), &mut bytes);
    raw::call(number, [socket.as_fd().raw() as usize, bytes.as_ptr().addr(), length])
}

fn ports() -> Result<u64, Failure> {
    Ok(process::quota(0, Resource::Ports)?.used)
}

async fn ports_are_charged_while_a_socket_is_bound() -> Outcome {
    let before = ports()?;
    let listener = TcpListener::bind(ANY_PORT)?;
    check_equal!(ports()? - before, 1, "ports with a listener");
    let address = listener.local_address()?;
    let client = soon("a connection", TcpStream::connect(address)).await??;
    let server = soon("its other end", listener.accept()).await??;
    check_equal!(ports()? - before, 2, "ports with a connection to it");
    let bound = socket(SOCK_STREAM)?;
    check_equal!(call_with(BIND, &bound, ANY_PORT), Ok(0), "bind of a socket that then connects");
    check_equal!(call_with(CONNECT, &bound, address), Ok(0), "connect from its port");
    let datagrams = socket(SOCK_DGRAM)?;
    check_equal!(ports()? - before, 3, "ports with a socket for datagrams that has none");
    check_equal!(call_with(CONNECT, &datagrams, address), Ok(0), "connect of datagrams");
    check_equal!(ports()? - before, 4, "ports with datagrams");

    process::set_quota(0, Resource::Ports, before + 4)?;
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let more = socket(kind)?;
        check_equal!(call_with(BIND, &more, ANY_PORT), Err(Errno::EADDRINUSE), "one more, bound");
        let connected = call_with(CONNECT, &more, address);
        check_equal!(connected, Err(Errno::EADDRNOTAVAIL), "one more, connected");
    }
    check_equal!(ports()? - before, 4, "ports after what was refused");
    drop(datagrams);
    check_equal!(ports()? - before, 3, "ports without datagrams");
    let again = TcpListener::bind(ANY_PORT)?;
    check_equal!(ports()? - before, 4, "ports with another listener");
    drop((again, bound, client, server, listener));
    until("the ports of closed sockets are free", || Ok(ports()? == before)).await
}

/// Binds sockets for as long as there are ports. Fails if anything else ends that.
fn hold_ports() -> ExitCode {
    let mut held = Vec::new();
    loop {
        let Ok(more) = socket(SOCK_STREAM) else { return ExitCode(2) };
        match call_with(BIND, &more, ANY_PORT) {
            Ok(_) => held.push(more),
            Err(Errno::EADDRINUSE) => return stay(),
            Err(_) => return ExitCode(3),
        }
    }
}

/// Programs that bind all ports that they can leave some for others, of the same family too.
async fn a_port_hog_beside_an_innocent_process() -> Outcome {
    let before = ports()?;
    let mut hogs = Vec::new();
    for _ in 0..3 {
        let hog = start_tied(&[HELPER, "hold-ports"])?;
        let held = filled(&hog, Resource::Ports).await?;
        check!((50..=4608).contains(&held), "a hog has {held} ports");
        hogs.push(hog);
        let listeners: Result<Vec<_>, _> = (0..40).map(|_| TcpListener::bind(ANY_PORT)).collect();
        for listener in &listeners? {
            let address = listener.local_address()?;
            soon("an innocent connection", TcpStream::connect(address)).await??;
        }
    }
    for hog in hogs {
        hog.end().await?;
    }
    until("the ports are free", || Ok(ports()? == before)).await
}

async fn more_descriptors_than_there_are() -> Outcome {
    let mut all = Vec::new();
    process::set_quota(0, Resource::Descriptors, 100)?;
    let error = loop {
        match pipe() {
            Ok(ends) => all.push(ends),
            Err(error) => break errno(error),
        }
    };
    check_equal!(error, Some(Errno::EMFILE), "the error");
    let used = process::quota(0, Resource::Descriptors)?.used;
    check!(used <= 100 && all.len() >= 45, "{used} descriptors, {} pipes", all.len());
    all.pop();
    let Ok((mut reader, mut writer)) = pipe() else {
        return Err(Failure("one closed makes no room".into()));
    };
    writer.write(b"x").await?;
    check_equal!(reader.read(&mut [0; 4]).await?, 1, "bytes read");
    Ok(())
}

/// Kills every orphan that this process has authority over. Returns how many.
fn kill_orphans() -> Result<usize, Failure> {
    let orphans = inspect::processes()?;
    let orphans = orphans.iter().filter(|other| other.parent == 0 && other.process != 1);
    Ok(orphans.filter(|orphan| process::kill(orphan.process, signal::SIGKILL).is_ok()).count())
}

async fn a_fork_bomb() -> Outcome {
    process::set_quota(0, Resource::Processes, 40)?;
    let bomb = start_tied(&[HELPER, "fork-bomb"])?;
    let outcome = beside_a_fork_bomb(&bomb).await;
    // Its descendants end before the test does, whatever its result.
    bomb.end().await?;
    let begin = Instant::now();
    while process::quota(0, Resource::Processes)?.used > 1 {
        kill_orphans()?;
        check!(begin.elapsed() < Duration::from_secs(10), "the bomb's descendants do not end");
        sleep(Duration::from_millis(5)).await;
    }
    outcome
}

async fn beside_a_fork_bomb(bomb: &Child) -> Outcome {
    let held = filled(bomb, Resource::Processes).await?;
    check!((5..=20).contains(&held), "the bomb has {held} processes");
    // Others can still start.
    innocent("1").await
}

async fn lowering_a_quota() -> Outcome {
    let child = start_tied(&[HELPER, "sleep", "100000"])?;
    let id = child.id();
    let was = process::quota(id, Resource::Calls)?;
    check!(was.limit <= process::quota(0, Resource::Calls)?.limit, "more than its parent's");
    let now = process::set_quota(id, Resource::Calls, 5)?;
    check_equal!(now.limit, 5, "the limit");
    let back = process::set_quota(id, Resource::Calls, u64::MAX)?;
    check_equal!(back.limit, process::quota(0, Resource::Calls)?.limit, "raised to its parent's");
    child.end().await?;
    let gone = process::quota(id, Resource::Calls).err().and_then(errno);
    check_equal!(gone, Some(Errno::ESRCH), "the quota of a process that is gone");
    check_equal!(
        raw::call(COPS_QUOTA, [0, 6, usize::MAX, 0]),
        Err(Errno::EINVAL),
        "a kind there is not"
    );
    check_equal!(raw::call(COPS_QUOTA, [0, 0, usize::MAX, 8]), Err(Errno::EFAULT), "a bad address");
    Ok(())
}

/// A process that asserts its old limit while its parent lowers it does not get it back.
async fn a_lowered_quota_stays() -> Outcome {
    const ROUNDS: u64 = 3000;
    let child = start_tied(&[HELPER, "assert-quota"])?;
    let limit = process::quota(child.id(), Resource::Memory)?.limit;
    for round in 1..=ROUNDS {
        process::set_quota(child.id(), Resource::Memory, limit - round)?;
        let now = process::quota(child.id(), Resource::Memory)?.limit;
        check_equal!(now, limit - round, "round {round}: the limit of a child");
    }
    child.end().await
}

async fn authority_over_quotas() -> Outcome {
    let sibling = start_tied(&[HELPER, "sleep", "100000"])?;
    for target in [sibling.id(), process::id(), process::parent_id()] {
        let status = run(&[HELPER, "attack-quotas", &format!("{target}")]).await?;
        check_equal!(status.code(), Some(0), "which attempt on {target} was not refused");
    }
    sibling.end().await
}

/// After children that did many things have been waited for, this process uses what it did before.
async fn everything_is_given_back() -> Outcome {
    let usage = || -> Result<Vec<u64>, Failure> {
        Ok(Resource::ALL
            .map(|resource| process::quota(0, resource).map_or(0, |quota| quota.used))
            .into())
    };
    // What this process allocates on first use is not a leak.
    run(&[HELPER, "exit", "0"]).await?;
    let before = usage()?;
    for _ in 0..5 {
        let child = start_tied(&[HELPER, "wait-in-many-ways"])?;
        sleep(Duration::from_millis(20)).await;
        child.end().await?;
        run(&[HELPER, "touch-memory", "3"]).await?;
    }
    let after = usage()?;
    // Its own heap, and calls, which are charged in batches, may have grown a little.
    check!(after[0] <= before[0] + (256 << 10), "memory: {} after {}", after[0], before[0]);
    check_equal!(
        (after[1], after[3], after[4]),
        (before[1], before[3], before[4]),
        "processes, files, CPUs"
    );
    check!(after[2] <= before[2] + 64, "calls: {} after {}", after[2], before[2]);
    Ok(())
}
