//! A most urgent coroutine answers packets while another program computes on all harts at the least
//! urgent level.
//!
//! The answer to each received byte is the time, in nanoseconds, from the moment when the kernel
//! took the network device's interrupt to the coroutine's next instruction, as 8 bytes, little
//! endian. It is all ones if another interrupt came meanwhile.

use cops::io::{self, Read, Write};
use cops::memory::statistics;
use cops::net::{Ipv4Addr, TcpListener};
use cops::process;
use cops::task::{self, Priority};

use crate::counter::ticks;

const PORT: u16 = 9000;
const NANOSECONDS_PER_TICK: u64 = 100;

pub async fn run() -> io::Result<()> {
    let served = task::spawn_join(serve(), Priority::MOST_URGENT).await;
    match served {
        Ok(outcome) => outcome,
        Err(_) => Ok(()),
    }
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    cops::println!("measure: listening on port {PORT}");
    let mut others = process::spawn_below("/bin/hostile", &["spin"], Some(Priority::LEAST_URGENT))?;
    let mut stream = listener.accept().await?;
    let mut byte = [0];
    while stream.read(&mut byte).await? == 1 {
        let woken = ticks();
        let interrupt = statistics()?.device_interrupt_ticks;
        let latency =
            woken.checked_sub(interrupt).map_or(u64::MAX, |ticks| ticks * NANOSECONDS_PER_TICK);
        stream.write_all(&latency.to_le_bytes()).await?;
    }
    others.kill()?;
    // The host ends the machine.
    core::future::pending().await
}
