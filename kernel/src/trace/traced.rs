//! Events and portions for the polls of the kernel's coroutines, and names for the coroutines that
//! never end.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Context;

use cops_abi::inspect::portion;
use cops_algorithms::fixed_list::FixedList;
use cops_lock::Mutex;

use super::{Event, current_number, emit, is_on};
use crate::portions;

/// Wraps `future`, that of a coroutine of this [kind](cops_abi::inspect::coroutine_kind), so that
/// its polls are traced. All coroutines of the kernel are spawned with this.
pub async fn traced<F: Future<Output = ()>, const KIND: usize>(future: F) {
    let mut future = pin!(future);
    let poll_traced = |context: &mut Context<'_>| {
        poll(KIND, || future.as_mut().poll(context), |poll| poll.is_ready())
    };
    poll_fn(poll_traced).await
}

/// Calls `work`, one poll of the current coroutine, which is of this kind, between the events for
/// its begin and its end.
#[inline]
pub fn poll<R>(kind: usize, work: impl FnOnce() -> R, is_finished: impl FnOnce(&R) -> bool) -> R {
    emit(move || Event::PollBegin {
        coroutine: current_number(),
        level: current_level(),
        kind: kind as u8,
    });
    portions::point(portion::SERVICE, || 0);
    portions::is(portion::SERVICE, || {
        let coroutine = current_number();
        (coroutine as u32, [coroutine, 0, 0, 0])
    });
    let result = work();
    portions::point(portion::EXECUTOR, || 0);
    if is_on() {
        let finished = is_finished(&result).into();
        emit(move || Event::PollEnd { coroutine: current_number(), finished });
    }
    result
}

/// The priority of the current coroutine.
fn current_level() -> u8 {
    cops_executor::current().and_then(cops_executor::priority).unwrap_or_default().level()
}

/// Maximum length of a name in bytes.
pub const NAME_BYTES: usize = 16;

/// Maximum number of named services: those of the kernel, and a switching coroutine for each hart.
const NAMES_MAX: usize = 32;

type Named = (u64, [u8; NAME_BYTES]);

static NAMES: Mutex<FixedList<Named, NAMES_MAX>> =
    Mutex::new(FixedList::of_copies((0, [0; NAME_BYTES])));

/// Names a coroutine that never ends, for `ps` and traces. A longer name is cut; names beyond
/// [`NAMES_MAX`] are dropped.
pub fn name(coroutine: u64, name: &str) {
    let mut bytes = [0; NAME_BYTES];
    for (place, byte) in bytes.iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    NAMES.lock().push((coroutine, bytes));
}

/// The name of a kernel coroutine; zeros if it has none.
pub fn name_of(coroutine: u64) -> [u8; NAME_BYTES] {
    let names = NAMES.lock();
    let found = names.iter().find(|(id, _)| *id == coroutine);
    found.map_or([0; NAME_BYTES], |(_, name)| *name)
}

/// Calls `each` with every named coroutine. `each` must not name a coroutine.
pub(super) fn for_each_name(mut each: impl FnMut(u64, [u8; NAME_BYTES])) {
    for &(coroutine, name) in &**NAMES.lock() {
        each(coroutine, name);
    }
}
