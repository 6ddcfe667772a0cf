//! The queue of a set has room for every notice that can come, so a notice never allocates.

use super::*;
use crate::front::join::modelled::{Side, sides};

fn insert(set: &mut JoinSet<u32>, members: u32) -> Vec<Side> {
    let member = |output| {
        let (handle, coroutine) = sides(async move { output });
        set.insert(handle);
        coroutine
    };
    (0..members).map(member).collect()
}

/// Notices that wait in the queue, and what it has room for.
fn queued(set: &JoinSet<u32>) -> (usize, usize) {
    set.queue.with(|finished| (finished.places.len(), finished.places.capacity()))
}

#[test]
fn the_queue_has_room_for_a_notice_of_each_member() {
    let mut set = JoinSet::new();
    let mut running = Vec::new();
    for members in [1, 4, 8, 100] {
        running.extend(insert(&mut set, members));
    }
    let room = queued(&set).1;
    running.into_iter().for_each(|coroutine| coroutine.end(false));
    assert_eq!(queued(&set), (113, room));
    assert!((0..113).all(|_| set.try_join_next().is_some()));
    assert!(set.is_empty());
}

#[test]
fn notices_of_detached_members_take_no_room() {
    let mut set = JoinSet::new();
    let detached = insert(&mut set, 4);
    // These have finished. Others may be about to leave their notice.
    detached.into_iter().for_each(|coroutine| coroutine.end(false));
    assert_eq!(queued(&set).0, 4);
    set.detach_all();
    let members = insert(&mut set, 4);
    let room = queued(&set).1;
    members.into_iter().for_each(|coroutine| coroutine.end(false));
    assert_eq!(queued(&set), (4, room));
}

#[test]
fn a_handle_without_an_output_takes_no_place() {
    let mut set = JoinSet::new();
    for _ in 0..2 {
        let (mut handle, coroutine) = sides(async { 1 });
        coroutine.end(false);
        let context = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut handle).poll(context).is_ready());
        let inserting = std::panic::AssertUnwindSafe(|| set.insert(handle));
        assert!(std::panic::catch_unwind(inserting).is_err());
        assert_eq!((set.len(), set.try_join_next()), (0, None));
        // The next one gets the place.
        let [coroutine] = insert(&mut set, 1).try_into().ok().unwrap();
        coroutine.end(false);
        assert_eq!((set.len(), set.try_join_next()), (1, Some(Ok(0))));
    }
}
