//! Safe code may write anything into the records of workers: their fields are public atomics, and a
//! program's records are in a page that it can write. The executor then schedules in a wrong order,
//! or forgets a wake; but its lists stay sound, no coroutine is polled twice at once or after its
//! end, and all come to their end when they are woken again.

mod common;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use common::random::Random;
use cops_executor::*;

static MEMORY: [StaticMemory<{ memory_for(3, 4_000) }>; 2] = [const { StaticMemory::new() }; 2];
/// Its holder is noted by the id that the record shows.
static MUTEXES: [sync::Mutex<bool>; 2] = [const { sync::Mutex::new(false) }; 2];
static RECORDS: [WorkerState; 3] = [const { WorkerState::new() }; 3];
static RECORDS_OF_THREADS: [WorkerState; 2] = [const { WorkerState::new() }; 2];

/// Writes something into a field of one of `records`: all bits, none, one, or any.
fn scribble(records: &[WorkerState], random: &mut Random) {
    let record = &records[random.next() as usize % records.len()];
    let word = match random.next() % 4 {
        0 => u64::MAX,
        1 => 0,
        2 => 1 << (random.next() % 64),
        _ => random.next(),
    };
    match random.next() % 9 {
        0..=2 => record.ready.store(word, Relaxed),
        3 => record.posted.store(word, Relaxed),
        4 => record.current_id.store(word, Relaxed),
        5 => record.current_priority.store(word as u32, Relaxed),
        6 => record.phase.store(word as u32, Relaxed),
        7 => record.woken.store(word as u32, Relaxed),
        _ => record.skipped_steals.store(word as u32, Relaxed),
    }
}

/// Yields so many times, scribbling; counts its polls and its end.
async fn scribbler(test: usize, seed: u64, yields: u32, ended: &'static AtomicU32) {
    let records: &[WorkerState] = if test == 0 { &RECORDS } else { &RECORDS_OF_THREADS };
    let mutex = &MUTEXES[test];
    let mut random = Random(seed);
    for _ in 0..yields {
        scribble(records, &mut random);
        if random.next().is_multiple_of(4) {
            let mut held = mutex.lock().await;
            assert!(!std::mem::replace(&mut *held, true), "a mutex has one holder");
            scribble(records, &mut random);
            yield_now().await;
            *held = false;
        }
        yield_now().await;
    }
    ended.fetch_add(1, Relaxed);
}

/// Wakes all until none is left: a note of a wake that was scribbled over is lost.
fn wake_until_done(executor: &'static Executor, ids: &[CoroutineId], workers: u32) {
    for _ in 0..10_000 {
        if executor.live_count() == 0 {
            return;
        }
        for &id in ids {
            let _ = wake_up(id);
        }
        for worker in 0..workers {
            executor.run_until_stalled(worker);
        }
    }
    panic!("{} are lost", executor.live_count());
}

#[test]
fn workers_that_take_turns_survive_any_record() {
    static EXECUTOR: Executor = Executor::with_number(70);
    static ENDED: AtomicU32 = AtomicU32::new(0);
    const ROUNDS: u64 = if cfg!(miri) { 40 } else { 4_000 };
    EXECUTOR.start_static(&MEMORY[0], |_| ()).unwrap();
    for (number, record) in RECORDS.iter().enumerate() {
        EXECUTOR.add_worker(number as u32, record).unwrap();
    }
    let mut random = Random(8);
    let mut ids = Vec::new();
    for round in 0..ROUNDS {
        let priority = Priority::saturating(random.next() as u32 % 64);
        ids.push(EXECUTOR.spawn(scribbler(0, round, 3, &ENDED), priority).unwrap());
        scribble(&RECORDS, &mut random);
        let some = ids[random.next() as usize % ids.len()];
        match random.next() % 4 {
            0 => drop(set_priority(some, Priority::saturating(random.next() as u32 % 64))),
            1 => drop(wake_up(some)),
            _ => {}
        }
        let _ = EXECUTOR.core().run(random.next() as u32 % 3, random.next() % 4);
        assert_eq!(EXECUTOR.core().verify(), Ok(()));
    }
    wake_until_done(&EXECUTOR, &ids, 3);
    assert_eq!(ENDED.load(Relaxed) as u64, ROUNDS);
    assert_eq!(EXECUTOR.core().verify(), Ok(()));
}

#[test]
fn threads_survive_any_record() {
    static EXECUTOR: Executor = Executor::with_number(71);
    static ENDED: AtomicU32 = AtomicU32::new(0);
    const COROUTINES: u64 = if cfg!(miri) { 10 } else { 1_000 };
    EXECUTOR.start_static(&MEMORY[1], |_| ()).unwrap();
    for (number, record) in RECORDS_OF_THREADS.iter().enumerate() {
        EXECUTOR.add_worker(number as u32, record).unwrap();
    }
    let mut random = Random(9);
    let ids: Vec<_> = (0..COROUTINES)
        .map(|seed| {
            let priority = Priority::saturating(random.next() as u32 % 64);
            EXECUTOR.spawn(scribbler(1, seed, 100, &ENDED), priority).unwrap()
        })
        .collect();
    thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || (0..50).for_each(|_| _ = EXECUTOR.run_until_stalled(worker)));
        }
    });
    assert_eq!(EXECUTOR.core().verify(), Ok(()));
    wake_until_done(&EXECUTOR, &ids, 2);
    assert_eq!(ENDED.load(Relaxed) as u64, COROUTINES);
}
