//! Ends programs that keep starting others.

use cops::abi::syscall::signal;
use cops::process::kill;
use cops::time::{Duration, Instant, sleep};

/// Number of successive unused process numbers after which there is no higher one.
const GAP: u32 = 20_000;
/// How long they may continue to start others while they are being ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends every process with the number `first` or higher, including those that are started
/// meanwhile.
pub async fn end_all_from(first: u32) {
    let begin = Instant::now();
    let mut last = first;
    while begin.elapsed() < PATIENCE {
        // Without a pause, because on one hart no other process can be started meanwhile.
        let mut ended = 0;
        let mut pid = first;
        while pid < last.saturating_add(GAP) {
            if kill(pid, signal::SIGKILL).is_ok() {
                ended += 1;
                last = last.max(pid);
            }
            pid += 1;
        }
        if ended == 0 {
            return;
        }
        sleep(Duration::from_millis(2)).await;
    }
}
