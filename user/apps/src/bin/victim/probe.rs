//! The probe: a coroutine that sleeps, wakes, and exchanges a byte with another one through two
//! pipes.

use alloc::vec::Vec;

use cops::io::{self, Read, Write, pipe};
use cops::println;
use cops::process::ExitCode;
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep_until};

use crate::options::Options;

/// Two latencies in nanoseconds, from the time at which the timer was due.
#[derive(Clone, Copy)]
struct Sample {
    /// To the coroutine's next instruction.
    woken: u64,
    /// To the echo of its byte.
    done: u64,
}

/// Measures and prints.
pub async fn run(options: &Options) -> ExitCode {
    let options = options.clone();
    let priority = Priority::saturating(options.level.into());
    let bound = options.bound_milliseconds;
    let measured =
        task::spawn_join(async move { measure(&options, priority).await }, priority).await;
    let Ok(Ok(samples)) = measured else {
        println!("probe: could not measure");
        return ExitCode::FAILURE;
    };
    let worst = samples.iter().map(|sample| sample.done).max().unwrap_or(0);
    println!(
        "probe: samples={} {} {}",
        samples.len(),
        summary("woken", samples.iter().map(|sample| sample.woken).collect()),
        summary("done", samples.iter().map(|sample| sample.done).collect()),
    );
    ExitCode(u8::from(worst / 1_000_000 > bound))
}

async fn measure(options: &Options, priority: Priority) -> io::Result<Vec<Sample>> {
    let (mut here, mut to_here) = pipe()?;
    let (mut there, mut to_there) = pipe()?;
    task::spawn(
        async move {
            let mut byte = [0];
            while there.read_exact(&mut byte).await.is_ok()
                && to_here.write_all(&byte).await.is_ok()
            {}
        },
        priority,
    );
    let mut random = 0x9e37_79b9_7f4a_7c15u64 ^ options.seed;
    let mut samples = Vec::with_capacity(options.samples);
    let mut due = Instant::now() + Duration::from_millis(options.delay_milliseconds);
    for count in 0..options.samples {
        sleep_until(due).await;
        let woken = Instant::now() - due;
        let sent = [count as u8];
        let mut received = [0];
        to_there.write_all(&sent).await?;
        here.read_exact(&mut received)
            .await
            .map_err(|_| io::Error::Kernel(cops::abi::Errno::EIO))?;
        if received != sent {
            return Err(io::Error::Kernel(cops::abi::Errno::EIO));
        }
        let done = Instant::now() - due;
        samples.push(Sample { woken: nanoseconds(woken), done: nanoseconds(done) });
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mean = options.mean_microseconds;
        due = due + Duration::from_micros(mean / 2 + random % mean.max(1));
    }
    Ok(samples)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Percentiles as words. `values` is not empty.
fn summary(name: &str, mut values: Vec<u64>) -> alloc::string::String {
    values.sort_unstable();
    // The smallest value that this many thousandths of all values do not exceed.
    let at = |thousandths: usize| {
        let rank = (values.len() * thousandths).div_ceil(1000).max(1);
        values.get(rank - 1).copied().unwrap_or(0)
    };
    alloc::format!(
        "{name}_p50_ns={} {name}_p99_ns={} {name}_p999_ns={} {name}_max_ns={}",
        at(500),
        at(990),
        at(999),
        at(1000)
    )
}
