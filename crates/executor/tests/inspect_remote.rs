//! A kernel's view of an executor in another address space agrees with the executor's own, and
//! survives any memory.
#![cfg(all(feature = "std", target_pointer_width = "64"))]
#![allow(unsafe_code)]

use std::future::pending;

use cops_executor::core::{Executor as Core, Inspected, Phase};
use cops_executor::{Executor, Priority};

static EXECUTOR: Executor = Executor::with_number(9);

/// This process's memory, word by word.
fn own_memory(address: u64) -> Option<u64> {
    // SAFETY: the walk asks for words of the executor's own structures only, which are atomics and
    // live for ever.
    Some(unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() })
}

#[test]
fn both_views_agree() {
    EXECUTOR.start_on_host(1).unwrap();
    for number in 0..700u32 {
        let priority = Priority::saturating(number % 64);
        match number % 3 {
            0 => EXECUTOR.spawn_of_kind::<_, 5>(pending(), priority),
            1 => EXECUTOR.spawn(pending(), priority),
            _ => EXECUTOR.spawn_join(pending::<()>(), priority).map(|handle| handle.id()),
        }
        .unwrap();
    }
    EXECUTOR.run(0, 300);
    let address = std::ptr::from_ref(EXECUTOR.core()).expose_provenance() as u64;
    let mut phases = [0; 4];
    let mut kinds = [0; 6];
    for index in 1.. {
        let own = EXECUTOR.inspect_slot(index);
        assert_eq!(Core::inspect_remote(address, 9, index, own_memory), own, "slot {index}");
        match own {
            Inspected::End => break,
            Inspected::Empty => {}
            Inspected::Coroutine(found) => {
                phases[found.phase as usize] += 1;
                kinds[found.kind] += 1;
            }
        }
    }
    assert_eq!(kinds, [466, 0, 0, 0, 0, 234]);
    assert_eq!(phases[Phase::Blocked as usize] + phases[Phase::Ready as usize], 700);
    assert!(
        phases[Phase::Blocked as usize] >= 300 && phases[Phase::Ready as usize] > 0,
        "{phases:?}"
    );
}

/// Words of a program that lies, and memory that ends.
#[test]
fn any_words_are_harmless() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut found = 0;
    for index in 0..100_000u32 {
        let word = |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (!random.is_multiple_of(5)).then_some(random)
        };
        let slot =
            Core::inspect_remote(u64::from(index) << 40, 0, index.wrapping_mul(77_777), word);
        if let Inspected::Coroutine(one) = slot {
            assert!(one.worker < 64 && one.phase != Phase::Running, "{one:?}");
            found += 1;
        }
    }
    assert!(found > 1000, "no lie was ever believed");
    assert_eq!(Core::inspect_remote(0, 0, 1, |_| None), Inspected::End);
}
