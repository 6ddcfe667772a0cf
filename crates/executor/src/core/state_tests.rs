//! Every transition out of every state in which it may be called.

use super::*;

const P: Priority = Priority::DEFAULT;
const URGENT: Priority = Priority::MOST_URGENT;
/// The generation of a first occupant.
const FIRST: u32 = 1;

/// A state word in a given situation, reached by transitions only.
fn posted() -> State {
    let state = State::new();
    assert_eq!(state.occupy(P, 3), FIRST);
    state
}

fn listed() -> State {
    let state = posted();
    assert_eq!(state.take_from_inbox(3), Found::Link(P));
    state
}

fn running() -> State {
    let state = listed();
    pop(&state, 3);
    state
}

/// Pops for `by` what worker 3 has in a list.
fn pop(state: &State, by: u32) -> Snapshot {
    let popped = state.pop(3, by);
    assert!(popped == state.load());
    assert_eq!((popped.phase(), popped.worker()), (Phase::Running, by));
    popped
}

/// Settles a coroutine that has not woken itself, when the word may have been touched since it was popped.
fn settle(state: &State) -> Settled {
    state.settle_touched(false)
}

fn idle() -> State {
    let state = running();
    assert_eq!(settle(&state), Settled::Leave);
    state
}

fn free() -> State {
    let state = running();
    assert_eq!(state.vacate(), Vacated::Recycle);
    state
}

fn phase(state: &State) -> Phase {
    state.load().phase()
}

#[test]
fn occupy_makes_a_posted_ready_coroutine_of_the_next_generation() {
    let state = posted();
    assert_eq!(phase(&state), Phase::Ready);
    assert_eq!((state.load().worker(), state.load().priority()), (3, P));
    let state = free();
    assert_eq!(state.occupy(URGENT, 5), FIRST + 1);
    assert_eq!((state.load().worker(), state.load().priority()), (5, URGENT));
    assert!(!state.load().is_cancelled());
}

#[test]
fn wake_of_an_idle_one_posts_it_near_the_waker() {
    let state = idle();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Post { worker: 7, priority: P });
    assert_eq!((phase(&state), state.load().worker()), (Phase::Ready, 7));
    let state = idle();
    assert_eq!(state.wake(FIRST, None), Request::Post { worker: 3, priority: P });
}

#[test]
fn whoever_holds_the_lock_links_at_once() {
    let state = idle();
    assert_eq!(state.wake_linked(FIRST + 1, 7), None);
    assert_eq!(state.wake_linked(FIRST, 7), Some(P));
    assert_eq!(state.wake_linked(FIRST, 7), None, "it is ready");
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Post { worker: 7, priority: URGENT });
    assert_eq!(state.take_from_inbox(7), Found::Move { from: P, to: URGENT });
    let popped = state.pop(7, 7);
    assert_eq!(state.wake_linked(FIRST, 7), None, "it runs");
    assert_eq!(state.settle(popped, false), Settled::Leave);
    let state = running_with_stale_request();
    assert_eq!(settle(&state), Settled::Leave);
    assert_eq!(state.wake_linked(FIRST, 7), None, "an inbox carries it");
    assert_eq!(free().wake_linked(FIRST, 7), None);

    let state = State::new();
    assert_eq!(state.occupy_linked(URGENT, 5), (FIRST as u64) << 32);
    assert_eq!(state.pop(5, 5).priority(), URGENT);
}

#[test]
fn wake_is_idempotent() {
    for state in [posted(), listed()] {
        assert_eq!(state.wake(FIRST, Some(7)), Request::Done);
        assert_eq!((phase(&state), state.load().worker()), (Phase::Ready, 3));
    }
    let state = idle();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Post { worker: 7, priority: P });
    assert_eq!(state.wake(FIRST, Some(8)), Request::Done);
    assert_eq!(state.take_from_inbox(7), Found::Link(P));
}

#[test]
fn wake_during_the_poll_requeues() {
    let state = running();
    assert_eq!(state.wake(FIRST, Some(7)), Request::Done);
    assert_eq!(state.wake(FIRST, Some(7)), Request::Done);
    assert_eq!(settle(&state), Settled::Link(P));
    assert_eq!(state.load().worker(), 3);
    assert_eq!(pop(&state, 4).priority(), P);
    // The note was used up: once woken, once more polled.
    assert_eq!(settle(&state), Settled::Leave);
    assert_eq!(phase(&state), Phase::Blocked);
}

#[test]
fn a_coroutine_that_has_woken_itself_requeues_by_a_note() {
    let state = listed();
    let popped = pop(&state, 4);
    assert_eq!(state.settle(popped, true), Settled::Link(P));
    assert_eq!((phase(&state), state.load().worker()), (Phase::Ready, 4));
    // The same if others have touched the word meanwhile.
    let popped = state.pop(4, 5);
    assert_eq!(state.wake(FIRST, None), Request::Done);
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Done);
    assert_eq!(state.settle(popped, true), Settled::Link(URGENT));
    let popped = state.pop(5, 5);
    assert_eq!(state.settle(popped, false), Settled::Leave);
    assert_eq!(phase(&state), Phase::Blocked);
}

#[test]
fn a_wake_is_not_lost_whatever_the_settling_worker_remembers() {
    let state = listed();
    let popped = pop(&state, 3);
    assert_eq!(state.wake(FIRST, None), Request::Done);
    assert_eq!(state.settle(popped, false), Settled::Link(P));
}

#[test]
fn requests_for_the_dead_reach_nobody() {
    let freed = free();
    for generation in [0, FIRST, FIRST + 1, u32::MAX] {
        assert_eq!(freed.wake(generation, None), Request::Gone);
        assert_eq!(freed.cancel(generation, None), Request::Gone);
        assert_eq!(freed.set_priority(generation, URGENT), Request::Gone);
    }
    // Its successor in the slot is not touched either.
    assert_eq!(freed.occupy(P, 1), FIRST + 1);
    let before = freed.load();
    assert_eq!(freed.wake(FIRST, None), Request::Gone);
    assert_eq!(freed.cancel(FIRST, None), Request::Gone);
    assert_eq!(freed.set_priority(FIRST, URGENT), Request::Gone);
    assert!(freed.load() == before);
}

#[test]
fn cancel_makes_the_next_pop_a_drop() {
    for (state, posts) in [(posted(), false), (listed(), false), (idle(), true), (running(), false)] {
        let was = phase(&state);
        let request = state.cancel(FIRST, None);
        let expected = if posts { Request::Post { worker: 3, priority: P } } else { Request::Done };
        assert_eq!(request, expected, "in {was:?}");
        // Woken or not, cancelled again or not, it stays cancelled.
        assert_eq!(state.wake(FIRST, None), Request::Done);
        assert_eq!(state.cancel(FIRST, None), Request::Done);
        if was == Phase::Running {
            for woken in [false, true] {
                assert_eq!(state.settle_touched(woken), Settled::Drop);
            }
        } else {
            let _ = state.take_from_inbox(3);
            assert!(pop(&state, 3).is_cancelled(), "in {was:?}");
        }
        assert_eq!(state.vacate(), Vacated::Recycle);
        assert!(!state.load().is_cancelled());
    }
}

#[test]
fn a_listed_one_is_posted_to_its_owner_to_be_moved() {
    let state = listed();
    assert_eq!(state.set_priority(FIRST, P), Request::Done);
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Post { worker: 3, priority: URGENT });
    assert_eq!(state.take_from_inbox(3), Found::Move { from: P, to: URGENT });
    assert_eq!(pop(&state, 3).priority(), URGENT);
}

#[test]
fn there_and_back_again_moves_nothing() {
    let state = listed();
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Post { worker: 3, priority: URGENT });
    assert_eq!(state.set_priority(FIRST, P), Request::Announce { worker: 3, priority: P });
    assert_eq!(state.take_from_inbox(3), Found::Nothing);
    assert_eq!(pop(&state, 3).priority(), P);
}

#[test]
fn others_change_priority_in_place() {
    let state = posted();
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Announce { worker: 3, priority: URGENT });
    assert_eq!(state.take_from_inbox(3), Found::Link(URGENT));
    let state = idle();
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Done);
    assert_eq!(state.wake(FIRST, None), Request::Post { worker: 3, priority: URGENT });
    let state = running();
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Done);
    assert_eq!(state.wake(FIRST, None), Request::Done);
    assert_eq!(settle(&state), Settled::Link(URGENT));
}

/// A coroutine that was told to move, and popped before the inbox was looked at.
fn running_with_stale_request() -> State {
    let state = listed();
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Post { worker: 3, priority: URGENT });
    // A thief: worker 9.
    assert_eq!(pop(&state, 9).priority(), URGENT);
    state
}

#[test]
fn a_stale_request_is_ignored_once_it_is_found() {
    let state = running_with_stale_request();
    assert_eq!(state.take_from_inbox(3), Found::Nothing);
    assert_eq!(settle(&state), Settled::Leave);
    let state = running_with_stale_request();
    assert_eq!(settle(&state), Settled::Leave);
    assert_eq!(state.take_from_inbox(3), Found::Nothing);
    assert_eq!(phase(&state), Phase::Blocked);
}

#[test]
fn while_it_is_in_an_inbox_only_that_links_it() {
    let state = running_with_stale_request();
    assert_eq!(state.wake(FIRST, Some(9)), Request::Done);
    assert_eq!(settle(&state), Settled::Leave);
    assert_eq!(phase(&state), Phase::Ready);
    assert_eq!(state.take_from_inbox(3), Found::Link(URGENT));
    assert_eq!(state.load().worker(), 3);

    let state = running_with_stale_request();
    assert_eq!(settle(&state), Settled::Leave);
    // It blocked, and is not pushed a second time.
    assert_eq!(state.wake(FIRST, Some(9)), Request::Announce { worker: 9, priority: URGENT });
    assert_eq!(state.take_from_inbox(3), Found::Link(URGENT));
}

#[test]
fn while_it_is_in_an_inbox_the_slot_is_not_given_away() {
    let state = running_with_stale_request();
    assert_eq!(state.vacate(), Vacated::Leave);
    assert_eq!(phase(&state), Phase::Free);
    assert_eq!(state.wake(FIRST, None), Request::Gone);
    assert_eq!(state.take_from_inbox(3), Found::Recycle);
    assert_eq!(state.occupy(P, 0), FIRST + 1);
}

#[test]
fn only_what_no_inbox_knows_is_handed_over() {
    let state = listed();
    assert!(state.hand_over(5));
    assert_eq!((phase(&state), state.load().worker()), (Phase::Ready, 5));
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Post { worker: 5, priority: URGENT });
    assert!(!state.hand_over(3));
    assert_eq!(state.take_from_inbox(5), Found::Move { from: P, to: URGENT });
    assert!(state.hand_over(3));
    assert_eq!(pop(&state, 0).priority(), URGENT);
}

#[test]
fn fields_do_not_overlap() {
    let state = State::new();
    for worker in [0, 63] {
        for level in [0, 63] {
            let priority = Priority::new(level).unwrap();
            let generation = state.occupy(priority, worker);
            assert_eq!(state.take_from_inbox(worker), Found::Link(priority));
            let opposite = Priority::new(63 - level).unwrap();
            assert_eq!(
                state.set_priority(generation, opposite),
                Request::Post { worker, priority: opposite }
            );
            assert_eq!(state.take_from_inbox(worker), Found::Move { from: priority, to: opposite });
            assert_eq!(state.cancel(generation, None), Request::Done);
            let word = state.pop(worker, 63 - worker);
            assert!(word == state.load() && word.is_cancelled());
            assert_eq!(
                (word.generation(), word.worker(), word.priority()),
                (generation, 63 - worker, opposite)
            );
            assert_eq!(state.vacate(), Vacated::Recycle);
        }
    }
}

#[test]
fn the_short_way_back_into_the_list_is_taken_only_if_nobody_has_touched_the_word() {
    let state = listed();
    let popped = state.pop_own();
    assert!(popped == state.load() && popped.is_plain());
    assert!(state.relist(popped));
    assert_eq!(phase(&state), Phase::Ready);
    assert!(pop(&state, 3) == popped, "as if it had never been away");
    type Touch = fn(&State);
    let touches: [Touch; 3] = [
        |state| assert_eq!(state.wake(FIRST, None), Request::Done),
        |state| assert_eq!(state.cancel(FIRST, None), Request::Done),
        |state| assert_eq!(state.set_priority(FIRST, URGENT), Request::Done),
    ];
    for touch in touches {
        let state = listed();
        let popped = state.pop_own();
        touch(&state);
        let touched = state.load();
        assert!(!state.relist(popped));
        assert!(state.load() == touched);
    }
}

#[test]
fn what_is_cancelled_or_to_be_moved_is_not_plain() {
    let state = listed();
    assert_eq!(state.set_priority(FIRST, URGENT), Request::Post { worker: 3, priority: URGENT });
    assert!(!state.pop_own().is_plain());
    let state = listed();
    assert_eq!(state.cancel(FIRST, None), Request::Done);
    assert!(!state.pop_own().is_plain());
}
