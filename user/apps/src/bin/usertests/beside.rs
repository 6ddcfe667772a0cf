//! A normal program beside hostile programs: it finishes its work, the kernel continues, and all
//! resources are freed. `/bin/victim` contains the measurement; `./cops bench hostile` reports the
//! times.

use alloc::format;

use cops::process::spawn;

use crate::harness::Outcome;
use crate::{check, tests};

tests! { beside:
    lies_about_urgency,
    garbage_in_shared_pages,
    greed_for_time,
    bombs,
    churn,
    forged_wakes_and_calls,
}

/// Number of latencies that the victim measures beside each kind.
const SAMPLES: u32 = 25;
/// Far longer than any latency on an idle host.
const BOUND_MILLISECONDS: u32 = 3000;

/// Runs the victim beside each of these kinds, at the same ceiling.
async fn victim_beside(kinds: &str) -> Outcome {
    let arguments = [
        "beside",
        &format!("samples={SAMPLES}"),
        &format!("bound-ms={BOUND_MILLISECONDS}"),
        "level=32",
        "ceilings=32",
        &format!("kinds={kinds}"),
    ];
    let status = spawn("/bin/victim", &arguments)?.wait().await?;
    check!(status.success(), "/bin/victim beside {kinds}: {status}");
    Ok(())
}

async fn lies_about_urgency() -> Outcome {
    victim_beside("bitmap-all,bitmap-random").await
}

async fn garbage_in_shared_pages() -> Outcome {
    victim_beside("page-garbage,index-race,overflow-forger").await
}

async fn greed_for_time() -> Outcome {
    victim_beside("spin,yield-storm,trap-storm").await
}

async fn bombs() -> Outcome {
    victim_beside("spawn-wide,spawn-deep").await
}

async fn churn() -> Outcome {
    victim_beside("spawn-churn,memory-churn").await
}

async fn forged_wakes_and_calls() -> Outcome {
    victim_beside("wake-forger,call-storm,close-pending").await
}
