//! The heap.

use alloc::alloc::{Layout, alloc, dealloc};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use cops::task::{self, Priority, yield_now};
use futures_util::future::join_all;

use crate::harness::{Outcome, soon};
use crate::raw::Garbage;
use crate::{check, check_equal, tests};

tests! { heap:
    grows_and_keeps_contents,
    alignment,
    too_much_is_an_error,
    freed_is_used_again,
    from_all_cpus,
}

async fn grows_and_keeps_contents() -> Outcome {
    let mut blocks: VecDeque<(u8, Vec<u8>)> = VecDeque::new();
    let mut garbage = Garbage::new(0x4ea9);
    for round in 0..3000usize {
        let length = match garbage.next() % 20 {
            0 => garbage.next() % 200_000,
            1..5 => garbage.next() % 5000,
            _ => garbage.next() % 200,
        };
        blocks.push_back((round as u8, vec![round as u8; length]));
        if blocks.len() > 200 {
            let (value, block) = blocks.remove(garbage.next() % 200).unwrap_or_default();
            check!(
                block.iter().all(|&byte| byte == value),
                "a block of {} bytes changed",
                block.len()
            );
        }
    }
    let mut long = Vec::new();
    for value in 0..500_000u32 {
        long.push(value);
    }
    check!(long.iter().copied().eq(0..500_000), "a vector that grew lost something");
    Ok(())
}

#[allow(unsafe_code)]
async fn alignment() -> Outcome {
    for power in 0..16 {
        let layout = Layout::from_size_align(24, 1 << power)?;
        // SAFETY: the layout has 24 bytes; `alloc` requires only that the size is not zero.
        let place = unsafe { alloc(layout) };
        check!(
            !place.is_null() && place.addr() % (1 << power) == 0,
            "alignment to {}: {place:?}",
            1 << power
        );
        // SAFETY: `place` was allocated above with this layout and is not null.
        unsafe { dealloc(place, layout) };
    }
    Ok(())
}

async fn too_much_is_an_error() -> Outcome {
    for bytes in [1usize << 38, 1 << 40, isize::MAX as usize] {
        check!(Vec::<u8>::new().try_reserve_exact(bytes).is_err(), "there were {bytes} bytes");
    }
    check_equal!(vec![5u8; 1000].len(), 1000, "bytes after that");
    Ok(())
}

/// Memory that is freed and allocated again does not make the heap grow without limit.
async fn freed_is_used_again() -> Outcome {
    let mut frames_free = 0;
    for round in 0..400 {
        let block = vec![round as u8; 300_000];
        check_equal!(block[299_999], round as u8, "last byte");
        drop(block);
        if round == 10 {
            frames_free = cops::memory::statistics()?.frames_free;
        }
    }
    let lost = frames_free.saturating_sub(cops::memory::statistics()?.frames_free);
    check!(lost < 64, "{lost} frames fewer after memory that was freed again");
    Ok(())
}

async fn from_all_cpus() -> Outcome {
    task::alloc_cpu(3)?;
    let workers: Vec<_> = (1..=8u64)
        .map(|seed| {
            task::spawn_join(
                async move {
                    let mut garbage = Garbage::new(seed * 0x1234_5677);
                    let mut blocks: Vec<Vec<u64>> = Vec::new();
                    for _ in 0..500 {
                        blocks.push(vec![seed; garbage.next() % 300]);
                        if blocks.len() > 20 {
                            let block = blocks.swap_remove(garbage.next() % 20);
                            if block.iter().any(|&value| value != seed) {
                                return false;
                            }
                        }
                        yield_now().await;
                    }
                    true
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    for intact in soon("8 coroutines", join_all(workers)).await? {
        check!(intact?, "a block changed");
    }
    Ok(())
}
