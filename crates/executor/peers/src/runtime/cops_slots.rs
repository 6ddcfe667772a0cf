//! Ours without an allocator: futures in slots that the program owns, by `spawn_raw`. What embassy
//! always does.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Context;

use cops_executor::core::FutureVTable;
use cops_executor::{CoroutineId, Priority, waker_of};

use super::cops::Cops;
use super::{Runtime, Setup, Task};

/// cops-executor, futures in slots.
#[derive(Clone, Copy)]
pub struct CopsSlots(Cops);

/// Room for a future of one type.
pub struct Slot<F>(UnsafeCell<MaybeUninit<F>>);

/// SAFETY: a slot is given to one coroutine at a time (`Runtime::spawn`), which one worker polls at
/// a time, and `Task` is Send.
unsafe impl<F: Send> Sync for Slot<F> {}

impl<F: Task> Slot<F> {
    const VTABLE: FutureVTable = FutureVTable { poll: Self::poll, drop: Self::drop, kind: 0 };

    unsafe extern "C" fn poll(data: *mut (), id: u64) -> bool {
        let Some(id) = CoroutineId::from_raw(id) else { return true };
        let waker = waker_of(id);
        // SAFETY: the data is a slot that `spawn` filled and the executor has not dropped; it never
        // moves.
        let future = unsafe { Pin::new_unchecked(&mut *data.cast::<F>()) };
        future.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    unsafe extern "C" fn drop(data: *mut ()) {
        // SAFETY: the data is a slot that `spawn` filled. The executor calls this once, after the
        // last poll.
        unsafe { data.cast::<F>().drop_in_place() };
    }
}

impl Runtime for CopsSlots {
    type Slots<F: Task> = &'static [Slot<F>];

    fn start(setup: Setup) -> Self {
        CopsSlots(Cops::start(setup))
    }

    fn slots<F: Task>(self, count: usize) -> &'static [Slot<F>] {
        (0..count).map(|_| Slot(UnsafeCell::new(MaybeUninit::uninit()))).collect::<Vec<_>>().leak()
    }

    fn spawn<F: Task>(self, slots: &'static [Slot<F>], number: usize, future: F, level: u32) {
        let data = slots[number].0.get();
        // SAFETY: the slot is free (`Runtime::spawn`) and lives for ever; the table does as
        // `FutureVTable` says.
        unsafe {
            (*data).write(future);
            self.0.executor.spawn_raw(data.cast(), &Slot::<F>::VTABLE, Priority::saturating(level))
        }
        .expect("there is memory");
    }

    fn run<P: Task>(self, parent: P) {
        self.0.run(parent);
    }
}
