//! Getting rid of programs that do not want to go.

use cops::abi::syscall::signal;
use cops::process::kill;
use cops::time::{Duration, Instant, sleep};

/// So many process numbers in a row that nobody has: then there are none above either.
const GAP: u32 = 20_000;
/// How long they may go on starting others while they are being ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends every process whose number is `first` or larger, those included that are started meanwhile.
pub async fn end_all_from(first: u32) {
    let begin = Instant::now();
    let mut last = first;
    while begin.elapsed() < PATIENCE {
        // Without a pause: on one hart nobody can start another meanwhile.
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
