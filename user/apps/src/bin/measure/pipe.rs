//! Experiment B: `n` tasks in a chain of `n + 1` pipes. Task `i` reads a message from pipe `i` and
//! writes it to pipe `i + 1`.
//!
//! In the literal mode a message ends with the end of its pipe: a task reads to the end of the
//! file, writes, and closes. In the steady mode a message is as long as all are, and `rounds`
//! messages follow each other, each sent when the one before has arrived.

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::call::Call;
use cops::io::{self, AsFd, Fd, ReadOwned, Write, pipe};
use cops::task::{self, Priority};
use cops::thread::{self, Builder};

use crate::counter::set_nonblocking;
use crate::papers::{Measured, Model, Plan, STACK_BYTES, arrive, finish, wrong};

/// The message of a round, of which the first byte is its number; made from the one before, so that
/// a round costs little beside what is measured.
fn set_round(message: &mut [u8], round: u64) {
    if let Some(first) = message.first_mut() {
        *first = round as u8;
    }
}

/// The message of the first round.
fn message(plan: &Plan) -> Vec<u8> {
    (0..plan.bytes).map(|index| (index % 251) as u8).collect()
}

/// Checks what has come out of the chain.
fn check(expected: &[u8], found: &[u8]) -> io::Result<()> {
    if found == expected {
        return Ok(());
    }
    let place = expected.iter().zip(found).take_while(|(one, other)| one == other).count();
    Err(wrong("the length of the right bytes of a message", place as u64, expected.len() as u64))
}

/// The ends of a chain's pipes: what each task reads and writes, what the main task writes, and
/// what it reads.
struct Chain {
    tasks: Vec<(Fd, Fd)>,
    first: Fd,
    last: Fd,
}

fn chain(plan: &Plan) -> io::Result<Chain> {
    let mut tasks = Vec::with_capacity(plan.tasks as usize);
    let (mut reader, first) = pipe()?;
    for _ in 0..plan.tasks {
        let (next, writer) = pipe()?;
        tasks.push((core::mem::replace(&mut reader, next), writer));
    }
    if plan.model == Model::Yielding {
        for (reader, _) in &tasks {
            set_nonblocking(reader.raw())?;
        }
    }
    Ok(Chain { tasks, first, last: reader })
}

/// Runs the experiment and checks what arrives.
pub async fn run(plan: &Plan, measured: &mut Measured) -> io::Result<()> {
    match plan.model {
        Model::Coroutine => coroutines(plan, measured).await,
        Model::Thread | Model::Yielding => threads(plan, measured),
    }
}

// ---- coroutines

/// Reads a whole message into `buffer`, which has room for a byte more. Returns its length, which
/// is less in a literal chain that was cut. The buffer is lent to the kernel, so nothing is copied.
async fn receive(plan: &Plan, reader: &Fd, mut buffer: Vec<u8>) -> io::Result<(usize, Vec<u8>)> {
    let mut count = 0;
    while !plan.is_steady || count < plan.bytes {
        let result;
        (result, buffer) =
            Call::new(ReadOwned::new(reader.as_fd(), buffer, count..usize::MAX)).await;
        match result? {
            0 => break,
            more => count += more,
        }
    }
    Ok((count, buffer))
}

async fn member(plan: Plan, reader: Fd, mut writer: Fd) -> io::Result<()> {
    let mut buffer = vec![0; plan.bytes + 1];
    arrive();
    for _ in 0..plan.rounds {
        let count;
        (count, buffer) = receive(&plan, &reader, buffer).await?;
        writer.write_all(&buffer[..count]).await?;
    }
    Ok(())
}

async fn coroutines(plan: &Plan, measured: &mut Measured) -> io::Result<()> {
    let Chain { tasks, mut first, last } = chain(plan)?;
    let mut handles = Vec::with_capacity(tasks.len());
    for (reader, writer) in tasks {
        handles.push(task::spawn_join(member(*plan, reader, writer), Priority::DEFAULT));
    }
    measured.coroutines_created(plan).await;
    let mut buffer = vec![0; plan.bytes + 1];
    let mut sent = message(plan);
    if plan.is_steady {
        for round in 0..plan.rounds {
            set_round(&mut sent, round);
            first.write_all(&sent).await?;
            let count;
            (count, buffer) = receive(plan, &last, buffer).await?;
            check(&sent, &buffer[..count])?;
        }
        drop(first);
    } else {
        first.write_all(&sent).await?;
        drop(first);
        let count;
        (count, buffer) = receive(plan, &last, buffer).await?;
        check(&sent, &buffer[..count])?;
    }
    finish();
    for handle in handles {
        handle.await.map_err(|_| Errno::EIO)??;
    }
    Ok(())
}

// ---- threads

/// As [`receive`], on a thread, which the kernel lets sleep, or which yields until there is
/// something.
fn receive_blocking(plan: &Plan, reader: &Fd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while !plan.is_steady || count < plan.bytes {
        match cops::read!(reader, &mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(Errno::EAGAIN) => thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

fn send_blocking(writer: &Fd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = cops::write!(writer, bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

fn member_blocking(plan: &Plan, reader: &Fd, writer: &Fd) -> io::Result<()> {
    let mut buffer = vec![0; plan.bytes + 1];
    arrive();
    for _ in 0..plan.rounds {
        let count = receive_blocking(plan, reader, &mut buffer)?;
        send_blocking(writer, &buffer[..count])?;
    }
    Ok(())
}

fn threads(plan: &Plan, measured: &mut Measured) -> io::Result<()> {
    let plan = *plan;
    let Chain { tasks, first, last } = chain(&plan)?;
    let mut handles = Vec::with_capacity(tasks.len());
    for (reader, writer) in tasks {
        let act = move || member_blocking(&plan, &reader, &writer);
        handles.push(Builder::new().stack_size(STACK_BYTES).spawn(act)?);
    }
    measured.threads_created(&plan);
    let mut buffer = vec![0; plan.bytes + 1];
    let mut sent = message(&plan);
    if plan.is_steady {
        for round in 0..plan.rounds {
            set_round(&mut sent, round);
            send_blocking(&first, &sent)?;
            let count = receive_blocking(&plan, &last, &mut buffer)?;
            check(&sent, &buffer[..count])?;
        }
        drop(first);
    } else {
        send_blocking(&first, &sent)?;
        drop(first);
        let count = receive_blocking(&plan, &last, &mut buffer)?;
        check(&sent, &buffer[..count])?;
    }
    finish();
    for handle in handles {
        let Ok(result) = handle.join();
        result?;
    }
    Ok(())
}
