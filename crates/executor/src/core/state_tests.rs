//! Every transition out of every place in which it may be made.

use super::*;
use crate::core::snapshot::{NOTHING_INHERITED, PLACE_MASK};

const P: Priority = Priority::DEFAULT;
const URGENT: Priority = Priority::MOST_URGENT;
/// The generation of a first occupant.
const FIRST: u32 = 1;
const FIRST_ID: u64 = (FIRST as u64) << GENERATION_SHIFT;

/// A state word in a given situation, reached by transitions only.
fn posted() -> State {
    let state = State::new();
    assert_eq!(state.occupy(P, 3), FIRST_ID);
    state
}

fn listed() -> State {
    let state = posted();
    assert_eq!(state.take_from_inbox(3), P);
    state
}

fn blocked() -> State {
    let state = listed();
    assert_eq!(state.settle(state.peek(), false), Settled::Blocks);
    state
}

fn free() -> State {
    let state = listed();
    assert!(state.vacate());
    state
}

fn place(state: &State) -> Place {
    state.load().place()
}

#[test]
fn occupy_makes_a_coroutine_of_the_next_generation() {
    for before in [State::new(), free()] {
        let generation = before.load().generation() + 1;
        let id_high = (generation as u64) << GENERATION_SHIFT;
        assert_eq!(before.occupy(URGENT, 5), id_high);
        let word = before.load();
        assert_eq!((word.place(), word.worker(), word.priority()), (Place::Inbox, 5, URGENT));
        assert_eq!((word.base(), word.id_high(), word.generation()), (URGENT, id_high, generation));
        assert!(word.is_untouched());
    }
    let state = State::new();
    assert_eq!(state.occupy_listed(URGENT, 63), FIRST_ID);
    assert_eq!(state.load().0, FIRST_ID | Snapshot::plain(URGENT, 63));
    let state = State::new();
    assert_eq!(state.occupy_blocked(P, 7), FIRST_ID);
    assert!(state.load().is_blocked(FIRST) && !state.load().is_blocked(FIRST + 1));
}

#[test]
fn a_wake_posts_what_is_blocked_near_the_waker() {
    let state = blocked();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Post { worker: 7, priority: P });
    assert_eq!((place(&state), state.load().worker()), (Place::Inbox, 7));
    let state = blocked();
    assert_eq!(state.wake(FIRST, None), Request::Post { worker: 3, priority: P });
}

#[test]
fn a_worker_that_holds_the_lock_lists_at_once() {
    let state = blocked();
    let seen = state.peek();
    assert_eq!(state.wake_listed(seen, 7), Some(P));
    assert!(state.load().is(Snapshot::plain(P, 7)));
    assert_eq!(state.wake_listed(seen, 7), None, "it is not as it was seen");
    // By the priority that it has now.
    let state = blocked();
    assert_eq!(state.set_base(FIRST, URGENT), Request::Done);
    assert_eq!(state.wake_listed(state.peek(), 2), Some(URGENT));
    assert!(state.load().is(Snapshot::plain(URGENT, 2)));
}

#[test]
fn waking_what_is_ready_posts_nothing() {
    let state = posted();
    let before = state.load();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Done);
    assert!(state.load() == before);
    let state = listed();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Done);
    assert_eq!((place(&state), state.load().worker()), (Place::List, 3));
    assert!(!state.load().is_untouched());
    // The poll that begins is the one that the wake asks for.
    assert!(state.begin() == state.load() && state.load().is_untouched());
    assert_eq!(state.settle(state.peek(), false), Settled::Blocks);
}

#[test]
fn a_wake_during_the_poll_leads_to_another() {
    let state = listed();
    let begun = state.peek();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Done);
    assert_eq!(state.wake(FIRST, None), Request::Done);
    assert!(!state.block(begun));
    assert_eq!(state.settle(begun, false), Settled::Stays);
    // Used up: once woken, once more polled.
    assert!(state.load() == begun);
    assert_eq!(state.settle(begun, false), Settled::Blocks);
    assert_eq!(place(&state), Place::Blocked);
}

#[test]
fn what_has_woken_itself_stays() {
    let state = listed();
    let begun = state.peek();
    assert_eq!(state.settle(begun, true), Settled::Stays);
    assert!(state.load() == begun, "not even the word changes");
    // The same if others have touched the word meanwhile; then it is untouched again.
    assert_eq!(state.wake(FIRST, None), Request::Done);
    assert_eq!(state.settle(begun, true), Settled::Stays);
    assert!(state.load() == begun);
}

#[test]
fn requests_for_the_dead_have_no_effect() {
    let freed = free();
    let ask_all = |generation| {
        assert_eq!(freed.wake(generation, None), Request::Gone);
        assert_eq!(freed.cancel(generation, None), Request::Gone);
        assert_eq!(freed.set_base(generation, URGENT), Request::Gone);
        assert_eq!(freed.set_inherited(generation, URGENT), Request::Gone);
        assert_eq!(freed.relevel(generation, 3), None);
    };
    for generation in [0, FIRST, FIRST + 1, u32::MAX] {
        ask_all(generation);
    }
    // Its successor in the slot is not touched either.
    let _id = freed.occupy(P, 1);
    let before = freed.load();
    ask_all(FIRST);
    assert!(freed.load() == before);
}

#[test]
fn what_is_cancelled_is_dropped_and_not_polled() {
    for (state, expected) in [
        (posted(), Request::Done),
        (listed(), Request::Note { worker: 3 }),
        (blocked(), Request::Post { worker: 3, priority: P }),
    ] {
        assert_eq!(state.cancel(FIRST, None), expected);
        // Woken or not, cancelled again or not, it stays cancelled.
        let _ = state.wake(FIRST, None);
        let _ = state.cancel(FIRST, None);
        if place(&state) == Place::Inbox {
            assert_eq!(state.take_from_inbox(3), P);
        }
        let begun = state.begin();
        assert!(begun.is_cancelled() && !begun.is(Snapshot::plain(P, 3)));
        for woken in [false, true] {
            assert_eq!(state.settle(begun, woken), Settled::Ends);
        }
        assert!(state.vacate());
        assert_eq!(state.load().0, FIRST_ID);
    }
}

#[test]
fn a_priority_changes_in_place_until_a_list_is_concerned() {
    let state = posted();
    assert_eq!(state.set_base(FIRST, P), Request::Done, "as it was");
    assert_eq!(state.set_base(FIRST, URGENT), Request::Announce { worker: 3, priority: URGENT });
    assert_eq!(state.take_from_inbox(3), URGENT);
    let state = blocked();
    assert_eq!(state.set_base(FIRST, URGENT), Request::Done);
    assert_eq!(state.wake(FIRST, None), Request::Post { worker: 3, priority: URGENT });
    let state = listed();
    assert_eq!(state.set_base(FIRST, P), Request::Done);
    assert_eq!(state.set_base(FIRST, URGENT), Request::Move);
    assert!(state.load().is_misplaced() && state.load().listed_at() == P);
    assert_eq!(state.set_base(FIRST, P), Request::Move, "what was published is taken back");
    assert_eq!(state.relevel(FIRST, 3), None, "there and back again moves nothing");
}

#[test]
fn the_more_urgent_of_own_and_inherited_counts() {
    let at_level = |level| Priority::new(level).unwrap();
    let state = blocked();
    assert_eq!(state.set_inherited(FIRST, at_level(10)), Request::Done);
    assert_eq!((state.load().priority(), state.load().base()), (at_level(10), P));
    assert_eq!(state.set_base(FIRST, at_level(40)), Request::Done);
    assert_eq!((state.load().priority(), state.load().base()), (at_level(10), at_level(40)));
    assert_eq!(state.set_base(FIRST, at_level(5)), Request::Done);
    assert_eq!(state.load().priority(), at_level(5));
    assert_eq!(state.set_base(FIRST, P), Request::Done);
    assert_eq!(state.load().priority(), at_level(10), "what was lent is not forgotten");
    assert_eq!(state.wake(FIRST, None), Request::Post { worker: 3, priority: at_level(10) });
    assert_eq!(state.take_from_inbox(3), at_level(10));
    assert!(!state.load().is(Snapshot::plain(at_level(10), 3)), "it is to be settled with care");
    assert_eq!(state.set_inherited(FIRST, Priority::LEAST_URGENT), Request::Move);
    assert_eq!(state.relevel(FIRST, 3), Some((at_level(10), P)));
    assert!(state.load().is(Snapshot::plain(P, 3)));
}

#[test]
fn only_what_is_misplaced_here_is_moved_by_its_worker() {
    let state = listed();
    assert_eq!(state.relevel(FIRST, 3), None);
    assert_eq!(state.set_base(FIRST, URGENT), Request::Move);
    assert_eq!(state.relevel(FIRST, 4), None, "another worker's");
    assert_eq!(state.relevel(FIRST + 1, 3), None, "another coroutine");
    assert_eq!(state.relevel(FIRST, 3), Some((P, URGENT)));
    assert!(state.load().is(Snapshot::plain(URGENT, 3)));
}

#[test]
fn one_that_is_polled_moves_when_it_settles() {
    for touch in [false, true] {
        let state = listed();
        let begun = state.peek();
        assert_eq!(state.set_base(FIRST, URGENT), Request::Move);
        if touch {
            assert_eq!(state.wake(FIRST, None), Request::Done);
        }
        assert_eq!(state.settle(begun, true), Settled::Moves { to: URGENT });
        assert!(state.load().is(Snapshot::plain(URGENT, 3)));
    }
    // And does not if it blocks.
    let state = listed();
    let begun = state.peek();
    assert_eq!(state.set_base(FIRST, URGENT), Request::Move);
    assert_eq!(state.settle(begun, false), Settled::Blocks);
    assert_eq!(state.wake(FIRST, None), Request::Post { worker: 3, priority: URGENT });
}

#[test]
fn a_thief_takes_all_but_the_worker_over() {
    let state = listed();
    assert_eq!(state.wake(FIRST, None), Request::Done);
    assert_eq!(state.set_base(FIRST, URGENT), Request::Move);
    let before = state.load();
    for (from, to) in [(3, 63), (63, 0), (0, 5)] {
        let word = state.migrate(from, to);
        assert!(word == state.load() && word == before.with_worker(to));
    }
}

#[test]
fn a_slot_with_no_generations_left_is_retired() {
    let state = State::new();
    state.set_generation(LAST_GENERATION - 2);
    for used_up in [false, true] {
        let _id = state.occupy_listed(P, 0);
        assert_eq!(state.vacate(), !used_up);
        assert_eq!(state.load().0 & PLACE_MASK, Place::Nowhere as u64);
    }
}

#[test]
fn fields_do_not_overlap() {
    for worker in [0, 63] {
        for level in [0, 63] {
            let (priority, opposite) =
                (Priority::saturating(level), Priority::saturating(63 - level));
            let state = State::new();
            state.set_generation(41);
            assert_eq!(state.occupy_listed(priority, worker), 42 << GENERATION_SHIFT);
            let plain = state.load();
            assert_eq!(plain.0 & NOTHING_INHERITED, NOTHING_INHERITED);
            assert_eq!(
                (plain.listed_at(), plain.base(), plain.worker()),
                (priority, priority, worker)
            );
            assert!(plain.is(Snapshot::plain(priority, worker)));
            assert_eq!(plain.id_high_of(Snapshot::plain(priority, worker)), 42 << GENERATION_SHIFT);
            let _ = state.set_base(42, opposite);
            let _ = state.set_inherited(42, priority);
            let _ = state.cancel(42, None);
            let _ = state.wake(42, None);
            let word = state.migrate(worker, 63 - worker);
            assert_eq!(
                (word.listed_at(), word.base(), word.worker()),
                (priority, opposite, 63 - worker)
            );
            assert_eq!(word.priority(), priority.more_urgent_of(opposite));
            assert_eq!((word.generation(), word.place()), (42, Place::List));
            assert!(word.is_cancelled());
        }
    }
}
