//! A most urgent coroutine answers packets while another program computes on all harts at the least
//! urgent level.
//!
//! The answer to each received byte is the time, in nanoseconds, from the moment when the kernel
//! took the network device's interrupt, or found the frame without one, to the coroutine's next
//! instruction, as 8 bytes, little endian. It is all ones if another interrupt came meanwhile, and
//! all ones but the last bit if the frame was found late.

use cops::io::{self, Read, Write};
use cops::memory::statistics;
use cops::net::{Ipv4Addr, TcpListener};
use cops::process;
use cops::task::{self, Priority};
use cops::time::{Duration, sleep};

use crate::counter::ticks;

const PORT: u16 = 9000;
const UNTIL_THERE_IS_AN_ADDRESS: Duration = Duration::from_millis(200);
const NANOSECONDS_PER_TICK: u64 = 100;

/// The answers for a packet that cannot be told from others, and for one that was found late.
const UNKNOWN: u64 = u64::MAX;
const LATE: u64 = u64::MAX - 1;

pub async fn run() -> io::Result<()> {
    let served = task::spawn_join(serve(), Priority::MOST_URGENT).await;
    match served {
        Ok(outcome) => outcome,
        Err(_) => Ok(()),
    }
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    // A packet that comes before the network has its address is dropped, and with counted
    // instructions the peer may not repeat it: for it time stands still.
    sleep(UNTIL_THERE_IS_AN_ADDRESS).await;
    cops::println!("measure: listening on port {PORT}");
    let mut others = process::spawn_below("/bin/hostile", &["spin"], Some(Priority::LEAST_URGENT))?;
    let mut stream = listener.accept().await?;
    let mut byte = [0];
    let mut found_late = statistics()?.frames_found_late;
    while stream.read(&mut byte).await? == 1 {
        let woken = ticks();
        let now = statistics()?;
        let latency = if now.frames_found_late == found_late {
            let since = woken.checked_sub(now.device_interrupt_ticks);
            since.map_or(UNKNOWN, |ticks| ticks * NANOSECONDS_PER_TICK)
        } else {
            LATE
        };
        found_late = now.frames_found_late;
        stream.write_all(&latency.to_le_bytes()).await?;
    }
    others.kill()?;
    // The host ends the machine.
    core::future::pending().await
}
