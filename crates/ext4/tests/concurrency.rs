//! Operations that run at the same time, in random order, on a slow disk; and futures that are
//! dropped half-way.

mod common;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use common::device::Device;
use common::image::{self, IMAGES, must_be_clean, repaired};
use common::model::read_all;
use common::{Random, at, rounds, run};
use cops_executor::{CoroutineId, Executor, Priority, RunOutcome, priority, yield_now};
use cops_ext4::{Error, Ext4, Kind, New, ROOT, SMALLEST_CACHE, Time};

const NOW: Time = at(1_700_000_000);
const NEW: New = New { permissions: 0o600, user: 0, group: 0, now: NOW, hold: false };

fn open(device: &Device) -> Ext4<Device> {
    run(Ext4::open(device.clone(), SMALLEST_CACHE, NOW)).unwrap()
}

/// Polls futures in random order; drops one with probability 1 of `drops` before a poll, if it is
/// not 0. Returns which ones ended.
fn run_all<'a>(
    mut futures: Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    random: &mut Random,
    drops: u64,
) {
    let mut polls = 0_u64;
    while !futures.is_empty() {
        let at = random.below(futures.len() as u64) as usize;
        if drops > 0 && random.below(drops) == 0 {
            drop(futures.swap_remove(at));
            continue;
        }
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(()) = futures[at].as_mut().poll(&mut context) {
            drop(futures.swap_remove(at));
        }
        polls += 1;
        assert!(polls < 10_000_000, "the futures wait for each other");
    }
}

/// The byte that file `number` has everywhere after `round`.
fn value(number: usize, round: usize) -> u8 {
    (number * 16 + round % 16) as u8
}

/// A client with a file of its own: everything it reads is what it wrote.
async fn client(on: &Ext4<Device>, number: usize, rounds: usize) {
    let name = format!("file {number}").into_bytes();
    let other = format!("renamed {number}").into_bytes();
    let file = on.create(ROOT, &name, Kind::Regular, NEW).await.unwrap().inode;
    for round in 0..rounds {
        let length = 1000 + 700 * (round % 5) + 13 * number;
        on.truncate(file, 0, NOW).await.unwrap();
        on.write(file, 0, &vec![value(number, round); length], NOW).await.unwrap();
        let mut content = vec![0; length + 1];
        assert_eq!(on.read(file, 0, &mut content).await, Ok(length));
        assert!(content[..length].iter().all(|byte| *byte == value(number, round)));
        on.rename((ROOT, &name), (ROOT, &other), true, NOW).await.unwrap();
        assert!(on.lookup(ROOT, &name).await.is_err());
        if round % 3 == 0 {
            on.sync_file(file).await.unwrap();
        }
        on.rename((ROOT, &other), (ROOT, &name), true, NOW).await.unwrap();
        assert_eq!(on.lookup(ROOT, &name).await.unwrap().inode, file);
    }
}

#[test]
fn clients_do_not_see_each_other() {
    for (kind, size, options) in IMAGES {
        let image = image::make(size, options);
        for seed in 0..rounds(3) {
            let mut random = Random::new(seed);
            let device = Device::new(image.clone());
            let file_system = open(&device);
            device.0.lock().unwrap().slow = Some(random.clone());
            let clients = (0..8).map(|number| -> Pin<Box<dyn Future<Output = ()> + Send>> {
                Box::pin(client(&file_system, number, 8))
            });
            run_all(clients.collect(), &mut random, 0);
            device.0.lock().unwrap().slow = None;
            run(file_system.close()).unwrap();
            must_be_clean(&device.bytes(), kind);
        }
    }
}

/// Readers of a file that is replaced all the time see one content or another, never a mixture:
/// each operation is published as a whole.
#[test]
fn a_reader_sees_each_change_as_a_whole() {
    let (kind, size, options) = IMAGES[1];
    let image = image::make(size, options);
    for seed in 0..rounds(6) {
        let mut random = Random::new(seed);
        let device = Device::new(image.clone());
        let file_system = open(&device);
        let file = run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap().inode;
        run(file_system.write(file, 0, &[1; 20_000], NOW)).unwrap();
        run(file_system.close()).unwrap();
        let file_system = open(&device);
        device.0.lock().unwrap().slow = Some(random.clone());
        let writer = async {
            for round in 2..30 {
                file_system.write(file, 0, &[round; 20_000], NOW).await.unwrap();
            }
        };
        let reader = |limit: usize| {
            let file_system = &file_system;
            async move {
                for _ in 0..limit {
                    let mut content = vec![0; 20_000];
                    assert_eq!(file_system.read(file, 0, &mut content).await, Ok(20_000));
                    let values: BTreeSet<u8> = content.into_iter().collect();
                    assert_eq!(values.len(), 1, "a mixture: {values:?}");
                }
            }
        };
        run_all(vec![Box::pin(writer), Box::pin(reader(30)), Box::pin(reader(30))], &mut random, 0);
        device.0.lock().unwrap().slow = None;
        run(file_system.close()).unwrap();
        must_be_clean(&device.bytes(), kind);
    }
}

/// Two readers wait for the disk at the same time.
#[test]
fn reads_run_beside_each_other() {
    let (_, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let files: Vec<u32> = (0..2)
        .map(|number| {
            let name = format!("file {number}").into_bytes();
            let file = run(file_system.create(ROOT, &name, Kind::Regular, NEW)).unwrap().inode;
            run(file_system.write(file, 0, &[7; 4096], NOW)).unwrap();
            file
        })
        .collect();
    run(file_system.close()).unwrap();
    let file_system = open(&device);
    // The inodes are in memory, the contents are not.
    for file in &files {
        run(file_system.attributes(*file)).unwrap();
    }
    let mut buffers = [vec![0; 4096], vec![0; 4096]];
    let before = device.0.lock().unwrap().left;
    device.0.lock().unwrap().slow = Some(Random::new(1));
    let [one, two] = &mut buffers;
    let mut first = Box::pin(file_system.read(files[0], 0, one));
    let mut second = Box::pin(file_system.read(files[1], 0, two));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(before - device.0.lock().unwrap().left, 2, "requests in flight");
    drop((first, second));
}

/// Unimportant readers of a file, which wait for the disk.
fn waiting_readers(
    executor: &'static Executor,
    count: usize,
) -> (&'static Ext4<Device>, u32, Vec<CoroutineId>) {
    executor.start_on_host(1).unwrap();
    let (_, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let on = open(&device);
    let file = run(on.create(ROOT, b"file", Kind::Regular, NEW)).unwrap().inode;
    run(on.write(file, 0, &[7; 4096], NOW)).unwrap();
    run(on.close()).unwrap();
    let on: &'static Ext4<Device> = Box::leak(Box::new(open(&device)));
    device.0.lock().unwrap().slow = Some(Random::new(1));
    let readers = (0..count).map(|_| {
        let read = async move { assert_eq!(on.read(file, 0, &mut [0; 10]).await, Ok(10)) };
        executor.spawn(read, Priority::LEAST_URGENT).unwrap()
    });
    let readers: Vec<_> = readers.collect();
    // Each is polled once.
    executor.run(0, count as u64);
    (on, file, readers)
}

/// One of middle urgency computes beside the readers, when `urgent` begins. Returns how many polls
/// of the middle one it waits for.
fn polls_before<T>(
    executor: &'static Executor,
    readers: usize,
    urgent: impl FnOnce(&'static Ext4<Device>, u32) -> T,
) -> u32
where
    T: Future<Output = ()> + Send + 'static,
{
    const MIDDLE: u32 = 1_000;
    let (on, file, _) = waiting_readers(executor, readers);
    let polls: &'static AtomicU32 = Box::leak(Box::default());
    let waited: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(u32::MAX)));
    let middle = async {
        for _ in 0..MIDDLE {
            polls.fetch_add(1, Relaxed);
            yield_now().await;
        }
    };
    executor.spawn(middle, Priority::DEFAULT).unwrap();
    let urgent = urgent(on, file);
    let urgent = async {
        urgent.await;
        waited.store(polls.load(Relaxed), Relaxed);
    };
    executor.spawn(urgent, Priority::MOST_URGENT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!((executor.live_count(), polls.load(Relaxed)), (0, MIDDLE));
    waited.load(Relaxed)
}

#[test]
fn readers_are_as_urgent_as_the_change_that_waits_for_them() {
    static EXECUTOR: Executor = Executor::with_number(20);
    let waited = polls_before(&EXECUTOR, 5, |on, file| async move {
        on.write(file, 0, b"new", NOW).await.unwrap();
    });
    assert_eq!(waited, 0, "polls of the middle one");
}

/// At the same time, so that their requests of the disk are, too.
#[test]
fn all_readers_become_urgent_at_once() {
    static EXECUTOR: Executor = Executor::with_number(22);
    let (on, file, readers) = waiting_readers(&EXECUTOR, 5);
    let urgent = async move {
        on.write(file, 0, b"new", NOW).await.unwrap();
    };
    EXECUTOR.spawn(urgent, Priority::MOST_URGENT).unwrap();
    let is_urgent = |id: &CoroutineId| priority(*id) == Some(Priority::MOST_URGENT);
    while !readers.iter().any(is_urgent) {
        assert_ne!(EXECUTOR.run(0, 1), RunOutcome::Stalled, "it did not wait for readers");
    }
    assert!(readers.iter().all(|id| is_urgent(id) || priority(*id).is_none()));
    EXECUTOR.run_until_stalled(0);
    assert_eq!(EXECUTOR.live_count(), 0);
}

#[test]
fn readers_are_as_urgent_as_one_that_waits_for_its_turn() {
    static EXECUTOR: Executor = Executor::with_number(21);
    // As many as may read at the same time, and more.
    let waited = polls_before(&EXECUTOR, 40, |on, file| async move {
        on.attributes(file).await.unwrap();
    });
    assert_eq!(waited, 0, "polls of the middle one");
}

/// What was read ahead is read from the cache, and reading ahead ends at the end of the file.
#[test]
fn what_is_read_ahead_is_not_read_again() {
    const LENGTH: usize = 300_000;
    let (_, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let file = run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap().inode;
    run(file_system.write(file, 0, &[7; LENGTH], NOW)).unwrap();
    run(file_system.close()).unwrap();
    let file_system = open(&device);
    run(file_system.prefetch(file, 5000, u64::MAX)).unwrap();
    let before = device.0.lock().unwrap().reads;
    let mut content = vec![0; LENGTH];
    assert_eq!(run(file_system.read(file, 5000, &mut content)), Ok(LENGTH - 5000));
    assert!(content[..LENGTH - 5000].iter().all(|byte| *byte == 7));
    run(file_system.prefetch(file, 5000, 100_000)).unwrap();
    run(file_system.prefetch(file, LENGTH as u64, 100_000)).unwrap();
    assert_eq!(device.0.lock().unwrap().reads, before);
    assert_eq!(run(file_system.prefetch(ROOT, 0, 1)), Err(Error::IsDirectory));
}

/// Futures are dropped at any point, those of commits too: the file system stays consistent in
/// memory and, after a crash at the end, on the disk.
#[test]
fn dropped_futures_change_nothing_or_all() {
    for (kind, size, options) in IMAGES {
        let image = image::make(size, options);
        for seed in 0..rounds(6) {
            let mut random = Random::new(seed);
            let device = Device::new(image.clone());
            let file_system = open(&device);
            for round in 0..6 {
                device.0.lock().unwrap().slow = Some(random.clone());
                let clients = (0..6).map(|number| -> Pin<Box<dyn Future<Output = ()> + Send>> {
                    let file_system = &file_system;
                    Box::pin(async move {
                        let name = format!("file {number} {round}").into_bytes();
                        let Ok(file) = file_system.create(ROOT, &name, Kind::Regular, NEW).await
                        else {
                            return;
                        };
                        let data = vec![number as u8; 30_000];
                        file_system.write(file.inode, 0, &data, NOW).await.unwrap();
                        file_system.sync().await.unwrap();
                        file_system.truncate(file.inode, 100, NOW).await.unwrap();
                        file_system.unlink(ROOT, &name, NOW).await.unwrap();
                        file_system.checkpoint().await.unwrap();
                    })
                });
                run_all(clients.collect(), &mut random, 150);
            }
            device.0.lock().unwrap().slow = None;
            let context = format!("{kind}, seed {seed}");
            let before = read_all(&file_system).unwrap();
            run(file_system.sync()).unwrap();
            drop(file_system);
            must_be_clean(&repaired(&device.bytes(), &context), &context);
            let file_system = open(&device);
            let after = read_all(&file_system).unwrap();
            assert!(before == after, "{context}");
            run(file_system.close()).unwrap();
            must_be_clean(&device.bytes(), &context);
        }
    }
}

/// A request of a commit fails while others are under way. The device performs them, also if the
/// library is not interested any more; then they must not come after those of the next commit.
#[test]
fn writes_of_a_commit_that_failed_do_not_overtake_the_next_one() {
    let (kind, size, options) = IMAGES[1];
    let image = image::make(size, options);
    let mut failures = 0;
    for seed in 0..rounds(40) {
        let mut random = Random::new(seed);
        let device = Device::new(image.clone());
        let file_system = open(&device);
        let block = file_system.block_size();
        let file = run(file_system.create(ROOT, b"file", Kind::Regular, NEW)).unwrap().inode;
        // Not neighbours, so that each block is a request.
        let write = |value: u8| {
            for index in (0..24).rev().step_by(2) {
                let at = index * block as u64;
                run(file_system.write(file, at, &vec![value; block], NOW)).unwrap();
            }
        };
        write(1);
        run(file_system.sync()).unwrap();
        write(2);
        {
            let mut disk = device.0.lock().unwrap();
            (disk.slow, disk.late) = (Some(random.clone()), Some(random.clone()));
            disk.fail_after = Some(random.below(4));
        }
        failures += u64::from(run(file_system.sync()).is_err());
        device.0.lock().unwrap().fail_after = None;
        write(3);
        run(file_system.sync()).unwrap();
        // Time for what is late.
        for number in 0..20 {
            let name = format!("another file {number}").into_bytes();
            run(file_system.create(ROOT, &name, Kind::Regular, NEW)).unwrap();
            run(file_system.sync()).unwrap();
        }
        drop(file_system);
        device.0.lock().unwrap().late = None;
        let file_system = open(&device);
        let mut content = vec![0; 24 * block];
        assert_eq!(run(file_system.read(file, 0, &mut content)), Ok(24 * block));
        let old = content.iter().filter(|byte| !matches!(byte, 0 | 3)).count();
        assert_eq!(old, 0, "{kind}, seed {seed}: bytes of an earlier commit");
        run(file_system.close()).unwrap();
    }
    assert!(failures > 5, "{failures} commits failed");
}

/// Reading ahead is less urgent than anything else, and may rest for long: no change waits for it,
/// and what it has read by then is not taken for the content.
#[test]
fn a_change_does_not_wait_for_what_is_read_ahead() {
    const LENGTH: usize = 40_000;
    let (kind, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let make = |name: &[u8], length: usize| {
        let file = run(file_system.create(ROOT, name, Kind::Regular, NEW)).unwrap().inode;
        run(file_system.write(file, 0, &vec![1; length], NOW)).unwrap();
        file
    };
    let file = make(b"file", LENGTH);
    let other = make(b"other", 6 << 20);
    run(file_system.close()).unwrap();
    let file_system = open(&device);
    // The inode is in memory, the content is not.
    run(file_system.attributes(file)).unwrap();
    device.0.lock().unwrap().slow = Some(Random::new(1));
    let mut ahead = Box::pin(file_system.prefetch(file, 0, u64::MAX));
    assert!(ahead.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    device.0.lock().unwrap().slow = None;
    let new = vec![2; LENGTH.next_multiple_of(file_system.block_size())];
    assert!(common::poll_once(file_system.write(file, 0, &new, NOW)), "{kind}: the write waits");
    // It is on the disk, and not in the cache.
    run(file_system.checkpoint()).unwrap();
    let mut content = vec![0; 6 << 20];
    for _ in 0..6 {
        assert_eq!(run(file_system.read(other, 0, &mut content)), Ok(6 << 20));
    }
    run(ahead).unwrap();
    assert_eq!(run(file_system.read(file, 0, &mut content)), Ok(new.len()));
    assert!(content[..new.len()] == new, "{kind}: old content");
}

/// A deletion of many blocks works in steps, between which others make changes.
#[test]
fn changes_come_between_the_steps_of_a_deletion() {
    const EXTENTS: u64 = 450;
    let (kind, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let free = || run(file_system.statistics()).unwrap().free_blocks;
    let block = file_system.block_size() as u64;
    let make = |name: &[u8]| {
        let held = New { hold: true, ..NEW };
        run(file_system.create(ROOT, name, Kind::Regular, held)).unwrap().inode
    };
    // The directory has its block.
    run(file_system.create(ROOT, b"first", Kind::Regular, NEW)).unwrap();
    let before = free();
    let (deleted, cut, unnamed) = (make(b"deleted"), make(b"cut"), make(b"unnamed"));
    for file in [deleted, cut, unnamed] {
        for extent in 0..EXTENTS {
            run(file_system.write(file, 2 * extent * block, &[1; 100], NOW)).unwrap();
        }
    }
    run(file_system.unlink(ROOT, b"deleted", NOW)).unwrap();
    run(file_system.unlink(ROOT, b"unnamed", NOW)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut deletion = Box::pin(file_system.release(deleted, NOW));
    assert!(deletion.as_mut().poll(&mut context).is_pending(), "{kind}: deleted in one step");
    let other = file_system.create(ROOT, b"other", Kind::Regular, NEW);
    assert!(common::poll_once(other), "{kind}: a new file waits for the deletion");
    for (file, name) in [(cut, &b"1"[..]), (unnamed, b"2")] {
        let context_of = |what: &str| format!("{kind}, {file} of {cut} and {unnamed}: {what}");
        let mut truncation = Box::pin(file_system.truncate(file, 50, NOW));
        let is_pending = truncation.as_mut().poll(&mut context).is_pending();
        assert!(is_pending, "{}", context_of("cut in one step"));
        let other = file_system.create(ROOT, name, Kind::Regular, NEW);
        assert!(common::poll_once(other), "{}", context_of("a new file waits"));
        // What was cut off does not come back where the file grows.
        run(file_system.write(file, 3 * block, &[2; 100], NOW)).unwrap();
        let mut content = vec![0; 4 * block as usize];
        let length = run(file_system.read(file, 0, &mut content)).unwrap();
        assert_eq!(length as u64, 3 * block + 100);
        let (left, grown) = content[..3 * block as usize].split_at(50);
        assert!(left.iter().all(|&byte| byte == 1), "{}", context_of("what is left"));
        assert!(grown.iter().all(|&byte| byte == 0), "{}", context_of("old content"));
        run(truncation).unwrap();
        assert_eq!(run(file_system.attributes(file)).unwrap().size, 3 * block + 100);
    }
    run(deletion).unwrap();
    run(file_system.truncate(cut, 0, NOW)).unwrap();
    // Of the last release of a file without a name, nothing remains.
    run(file_system.release(unnamed, NOW)).unwrap();
    assert_eq!(run(file_system.attributes(unnamed)).map(drop), Err(Error::Stale));
    run(file_system.sync()).unwrap();
    assert_eq!(free(), before, "{kind}: free blocks");
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), kind);
}

/// A checkpoint continues what a dropped future has begun to delete, but not while another
/// operation changes something: it would wait for its turn, and the next sync would be late.
#[test]
fn a_deletion_of_a_dropped_future_is_continued() {
    let (kind, size, options) = IMAGES[0];
    let device = Device::new(image::make(size, options));
    let file_system = open(&device);
    let make = |name: &[u8]| {
        let file = run(file_system.create(ROOT, name, Kind::Regular, NEW)).unwrap().inode;
        run(file_system.write(file, 0, &[1; 100], NOW)).unwrap();
        file
    };
    let other = make(b"other");
    let before = run(file_system.statistics()).unwrap().free_blocks;
    let file = make(b"file");
    for extent in 0..700 {
        run(file_system.write(file, extent * 8192, &[1; 100], NOW)).unwrap();
    }
    run(file_system.close()).unwrap();
    let file_system = open(&device);
    let free = || run(file_system.statistics()).unwrap().free_blocks;
    assert!(!common::poll_once(file_system.unlink(ROOT, b"file", NOW)), "{kind}: in one step");
    let left = free();
    assert!(left < before, "{kind}: in one step");
    // It waits for the block.
    device.0.lock().unwrap().slow = Some(Random::new(1));
    let mut change = Box::pin(file_system.write(other, 10, b"new", NOW));
    assert!(change.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    run(file_system.checkpoint()).unwrap();
    assert_eq!(free(), left, "{kind}");
    assert_eq!(run(change), Ok(3));
    run(file_system.checkpoint()).unwrap();
    assert_eq!(free(), before, "{kind}");
    run(file_system.close()).unwrap();
    must_be_clean(&device.bytes(), kind);
}
