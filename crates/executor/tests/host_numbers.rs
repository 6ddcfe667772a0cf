//! When the numbers of executors run out. A program of its own, because it takes them all.

use std::collections::HashSet;

use cops_executor::*;

#[test]
fn the_257th_is_refused_and_one_that_ends_makes_room() {
    static EXECUTOR: Executor = Executor::new(0);
    EXECUTOR.start_on_host(1).unwrap();
    let build = || Runtime::builder().workers(1).stack_bytes(64 << 10).build();
    let mut runtimes: Vec<Runtime> = (0..255).map(|_| build().unwrap()).collect();
    let here: HashSet<_> = runtimes
        .iter()
        .map(|runtime| {
            let id = runtime.spawn(async { current().unwrap().executor() }, Priority::DEFAULT);
            runtime.block_on(id).unwrap()
        })
        .collect();
    assert_eq!(here, (1..=255).collect(), "each has its own, and none the one that is taken");

    assert!(matches!(build(), Err(BuildError::NumbersExhausted)));
    runtimes.pop();
    let next = build().unwrap();
    assert!(matches!(build(), Err(BuildError::NumbersExhausted)));
    drop(next);
    assert!(
        matches!(Runtime::new(2), Err(BuildError::NumbersExhausted)),
        "the one that is free has one worker"
    );
    assert_eq!(EXECUTOR.block_on(0, EXECUTOR.spawn_join(async { 1 }, Priority::DEFAULT).unwrap()), Ok(1));
}
