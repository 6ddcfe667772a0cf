//! The smallest use.
use cops_executor::*;
static EXECUTOR: Executor = Executor::new(1);
#[test]
fn spawn_runs() {
    EXECUTOR.start_on_host(1).unwrap();
    let handle = EXECUTOR.spawn_join(async { yield_now().await; 42 }, Priority::DEFAULT).unwrap();
    assert_eq!(EXECUTOR.block_on(0, handle), Ok(42));
    assert_eq!(EXECUTOR.live_count(), 0);
}
