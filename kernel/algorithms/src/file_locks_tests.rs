extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const BYTES: usize = 64;
const OWNERS: usize = 5;

const PAYER: Family = Family::ROOT;

fn file(number: u64) -> File {
    File { is_whole: false, identity: (1, number) }
}

fn range(first: u64, last: u64) -> Range {
    Range { first, last }
}

fn process(number: u32) -> Owner {
    Owner::Process(number)
}

fn owner(index: usize) -> Owner {
    if index < 3 { Owner::Process(index as u32 + 1) } else { Owner::OpenFile(index as u64) }
}

/// What each owner has of each byte.
type Model = [[Option<Kind>; BYTES]; OWNERS];

fn forbidden(
    model: &Model,
    own: usize,
    kind: Kind,
    part: core::ops::RangeInclusive<usize>,
) -> bool {
    (0..OWNERS).filter(|&other| other != own).any(|other| {
        part.clone().any(|at| match (kind, model[other][at]) {
            (_, None) => false,
            (Kind::Shared, Some(has)) => has == Kind::Exclusive,
            (Kind::Exclusive, Some(_)) => true,
        })
    })
}

/// What an owner has of a byte, as another owner would find it.
fn kind_at(locks: &FileLocks<()>, own: usize, at: usize) -> Option<Kind> {
    let holder = locks.files.get(&file(1))?.owners.get(&owner(own))?;
    holder.forbids(Kind::Exclusive, range(at as u64, at as u64)).map(|(kind, _)| kind)
}

/// Number of ranges that an owner has of the model.
fn runs(row: &[Option<Kind>; BYTES]) -> usize {
    (0..BYTES).filter(|&at| row[at].is_some() && (at == 0 || row[at - 1] != row[at])).count()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, Kind, usize, usize),
    Unset(usize, usize, usize),
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let part = || (0..BYTES, 1..24usize);
    let kind = prop_oneof![Just(Kind::Shared), Just(Kind::Exclusive)];
    let step = prop_oneof![
        5 => (0..OWNERS, kind, part()).prop_map(|(own, kind, (at, length))| Step::Set(own, kind, at, length)),
        3 => (0..OWNERS, part()).prop_map(|(own, (at, length))| Step::Unset(own, at, length)),
        1 => (0..OWNERS).prop_map(Step::Release),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn it_has_an_owner_and_a_kind_for_each_byte(steps in steps()) {
        let mut locks = FileLocks::<()>::new();
        let mut model: Model = [[None; BYTES]; OWNERS];
        for step in steps {
            match step {
                Step::Set(own, kind, first, length) => {
                    let last = (first + length - 1).min(BYTES - 1);
                    let part = range(first as u64, last as u64);
                    let is_forbidden = forbidden(&model, own, kind, first..=last);
                    let found = locks.conflict(file(1), owner(own), kind, part);
                    prop_assert_eq!(found.is_some(), is_forbidden);
                    let result = locks.set(file(1), (owner(own), PAYER), kind, part);
                    match (result, found) {
                        (Err(Refused::Conflict(one)), Some(other)) => {
                            prop_assert_eq!(one, other);
                            prop_assert!(one.owner != owner(own));
                            prop_assert!(one.range.first <= part.last && part.first <= one.range.last);
                        }
                        (Ok(_), None) => model[own][first..=last].fill(Some(kind)),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Unset(own, first, length) => {
                    let last = (first + length - 1).min(BYTES - 1);
                    let gone = locks.unset(file(1), owner(own), range(first as u64, last as u64));
                    prop_assert!(gone.is_ok());
                    model[own][first..=last].fill(None);
                }
                Step::Release(own) => {
                    let had = model[own].iter().any(Option::is_some);
                    prop_assert_eq!(locks.release(file(1), owner(own)).must_wake, had);
                    model[own].fill(None);
                }
            }
            let mut weight = 0;
            for (own, row) in model.iter().enumerate() {
                for (at, &kind) in row.iter().enumerate() {
                    prop_assert_eq!(kind_at(&locks, own, at), kind);
                }
                let charged = locks.charged(file(1), owner(own));
                let count = runs(row);
                let bytes = OWNER_BYTES + count as u64 * RANGE_BYTES;
                prop_assert_eq!(charged, (count > 0).then_some((PAYER, bytes)));
                let holder = locks.files.get(&file(1)).and_then(|entry| entry.owners.get(&owner(own)));
                weight += holder.map_or(0, Holder::weight);
            }
            prop_assert_eq!(locks.files.get(&file(1)).map_or(0, |entry| entry.weight), weight);
        }
        (0..OWNERS).for_each(|own| _ = locks.release(file(1), owner(own)));
        prop_assert!(locks.is_empty());
    }
}

#[test]
fn files_and_the_two_kinds_of_locks_are_separate() {
    let mut locks = FileLocks::<()>::new();
    let whole = File { is_whole: true, ..file(1) };
    for (file, owner) in [(file(1), process(1)), (file(2), process(2)), (whole, process(3))] {
        assert!(locks.set(file, (owner, PAYER), Kind::Exclusive, Range::ALL).is_ok());
    }
    assert!(locks.has(whole, process(3), Kind::Exclusive));
    assert!(!locks.has(whole, process(3), Kind::Shared));
    assert!(!locks.has(whole, process(1), Kind::Exclusive));
    let found = locks.conflict(whole, process(1), Kind::Shared, range(5, 5));
    let kind = Kind::Exclusive;
    assert_eq!(found, Some(Conflict { owner: process(3), kind, range: Range::ALL }));
}

#[test]
fn the_first_range_in_the_way_is_found() {
    let mut locks = FileLocks::<()>::new();
    let _ = locks.set(file(1), (process(1), PAYER), Kind::Exclusive, range(20, 29));
    let _ = locks.set(file(1), (process(1), PAYER), Kind::Shared, range(10, 14));
    let found = |kind, part| {
        let conflict = locks.conflict(file(1), process(2), kind, part);
        conflict.map(|conflict| conflict.range)
    };
    assert_eq!(found(Kind::Exclusive, Range::ALL), Some(range(10, 14)));
    assert_eq!(found(Kind::Shared, Range::ALL), Some(range(20, 29)));
    assert_eq!(found(Kind::Exclusive, range(15, 19)), None);
}

#[test]
fn many_ranges_are_replaced_at_once_and_freed_in_portions() {
    let mut locks = FileLocks::<()>::new();
    let me = (process(1), PAYER);
    for at in 0..5000 {
        assert!(locks.set(file(1), me, Kind::Exclusive, range(2 * at, 2 * at)).is_ok());
    }
    let gone = locks.set(file(1), me, Kind::Shared, range(1000, 9001)).unwrap();
    assert!(gone.must_wake);
    assert_eq!(gone.bytes(), 4001 * RANGE_BYTES);
    assert_eq!(locks.charged(file(1), me.0), Some((PAYER, OWNER_BYTES + 1000 * RANGE_BYTES)));
    let mut list = RemainsList::new();
    list.push(gone.remains.unwrap());
    let rest = locks.release(file(1), me.0);
    assert_eq!(rest.bytes(), 1000 * RANGE_BYTES);
    list.push(rest.remains.unwrap());
    let (mut bytes, mut portions) = (0, 0);
    while let Some(mut remains) = list.pop() {
        let (freed, has_more) = remains.free_some();
        (bytes, portions) = (bytes + freed, portions + 1);
        if has_more {
            list.push(remains);
        }
    }
    assert_eq!((bytes, portions), (5001 * RANGE_BYTES, 126 + 32));
    assert!(locks.is_empty());
}

#[test]
fn an_unset_needs_memory_only_if_it_splits_a_range() {
    let mut locks = FileLocks::<()>::new();
    let me = (process(1), PAYER);
    assert!(!locks.is_split_by(file(1), me.0, Range::ALL));
    for at in 0..100 {
        assert!(locks.set(file(1), me, Kind::Exclusive, range(10 * at, 10 * at + 2)).is_ok());
    }
    for (first, last, is_split) in [(1, 1, true), (0, 1, false), (1, 2, false), (1, 990, false)] {
        assert_eq!(locks.is_split_by(file(1), me.0, range(first, last)), is_split, "{first}");
    }
    assert!(!locks.is_split_by(file(1), process(2), range(1, 1)));
    let holder = |locks: &mut FileLocks<()>, of: &dyn Fn(&mut Holder)| {
        of(locks.files.get_mut(&file(1)).unwrap().owners.get_mut(&me.0).unwrap());
    };
    // A part, of which the ranges are freed at once.
    assert!(locks.unset(file(1), me.0, range(11, 319)).unwrap().remains.is_none());
    // All but a few: the box that the holder has had.
    holder(&mut locks, &|holder| {
        let own = core::ptr::from_ref(holder.remains.as_deref().unwrap());
        let prepared = holder.prepare(range(15, Range::LAST)).unwrap();
        assert!(prepared.spare.is_none() && holder.remains.is_none());
        assert!(core::ptr::eq(prepared.remains.as_deref().unwrap(), own));
        holder.remains = prepared.remains;
    });
    // So many that the holder needs its own box afterwards.
    holder(&mut locks, &|holder| {
        assert!(holder.prepare(range(0, 659)).unwrap().remains.is_some());
        assert!(holder.remains.is_some());
    });
    let gone = locks.unset(file(1), me.0, range(15, Range::LAST)).unwrap();
    assert_eq!(gone.bytes(), 68 * RANGE_BYTES);
    assert_eq!(locks.release(file(1), me.0).bytes(), 0);
    assert!(locks.is_empty());
}

#[test]
fn the_search_for_a_conflict_is_bounded() {
    let mut locks = FileLocks::<()>::new();
    let part = range(0, 0);
    let set = |locks: &mut FileLocks<()>, number| {
        locks.set(file(1), (process(number), PAYER), Kind::Shared, part).map(|_| ())
    };
    let owners = (WEIGHT_MAX / 3) as u32;
    (0..owners).for_each(|number| set(&mut locks, number).unwrap());
    assert_eq!(set(&mut locks, owners), Err(Refused::Full));
    // The next file has room, and so has this one when an owner leaves.
    let other = locks.set(file(2), (process(owners), PAYER), Kind::Shared, part);
    assert!(other.is_ok());
    let _ = locks.release(file(1), process(7));
    assert_eq!(set(&mut locks, owners), Ok(()));

    let me = (process(1), PAYER);
    for at in 0..RANGES_MAX as u64 {
        let result = locks.set(file(3), me, Kind::Shared, range(2 * at, 2 * at));
        assert_eq!(result.is_ok(), at < RANGES_MAX as u64 - 1, "{at}");
    }
    // What does not fit changes nothing, and less is always possible.
    assert_eq!(
        locks
            .conflict(file(3), process(2), Kind::Exclusive, range(131_068, 131_072))
            .map(|it| it.range),
        Some(range(131_068, 131_068))
    );
    assert!(locks.unset(file(3), me.0, Range::ALL).is_ok());
    assert!(locks.charged(file(3), me.0).is_none());
}

/// Process `number` waits for a byte that `blocker` has.
fn wait(locks: &mut FileLocks<()>, number: u32, at: u64, blocker: u32) -> bool {
    let what = (Kind::Exclusive, range(at, at));
    locks.wait((number, u64::from(number) * 7), file(1), what, process(blocker)).unwrap()
}

/// Each process of `1..=count` has the byte of its number.
fn own_bytes(count: u32) -> FileLocks<()> {
    let mut locks = FileLocks::new();
    for number in 1..=count {
        let at = u64::from(number);
        let set = locks.set(file(1), (process(number), PAYER), Kind::Exclusive, range(at, at));
        assert!(set.is_ok());
    }
    locks
}

#[test]
fn a_cycle_is_a_deadlock() {
    let mut locks = own_bytes(3);
    assert!(!wait(&mut locks, 1, 2, 2));
    assert!(!wait(&mut locks, 2, 3, 3));
    assert!(wait(&mut locks, 3, 1, 1));
    // The last one does not wait; when it has left, the second one can go on.
    let _ = locks.release(file(1), process(3));
    assert!(!wait(&mut locks, 2, 1, 1) || locks.blocker_of(1) == Some(process(2)));
}

#[test]
fn a_wait_counts_only_while_its_blocker_is_in_the_way() {
    let mut locks = own_bytes(2);
    assert!(!wait(&mut locks, 1, 2, 2));
    // It has got what it waits for, but has not run since.
    assert!(locks.unset(file(1), process(2), range(2, 2)).is_ok());
    assert!(!wait(&mut locks, 2, 1, 1));
    locks.end_wait((1, 7));
    locks.end_wait((2, 14));
    for number in [1, 2] {
        let _ = locks.release(file(1), process(number));
    }
    assert!(locks.is_empty());
}

#[test]
fn a_blocker_that_has_left_before_the_wait_is_noted_is_not_in_the_way() {
    let mut locks = own_bytes(2);
    // Process 1 has found process 2 at byte 2. Before it notes its wait, process 2 releases that
    // byte and waits for byte 1.
    assert!(locks.unset(file(1), process(2), range(2, 2)).is_ok());
    assert!(!wait(&mut locks, 2, 1, 1));
    assert!(!wait(&mut locks, 1, 2, 2));
}

#[test]
fn one_of_several_waits_of_a_process_counts() {
    let mut locks = own_bytes(3);
    // Process 1 has three threads that wait; what the first waited for is free.
    let what = |at| (Kind::Exclusive, range(at, at));
    for (number, at, blocker) in [(1, 9, 3), (2, 2, 2), (3, 3, 3)] {
        let waits = locks.wait((1, number), file(1), what(at), process(blocker));
        assert_eq!(waits, Ok(false));
    }
    assert!(wait(&mut locks, 2, 1, 1));
    // Waits behind the first one that counts are not looked at.
    assert!(!wait(&mut locks, 3, 1, 1));
}

#[test]
fn a_chain_is_followed_over_so_many_processes() {
    let most = CHAIN_MAX as u32;
    for count in [2, 3, most, most + 1] {
        let mut locks = own_bytes(count);
        for number in 1..count {
            assert!(!wait(&mut locks, number, u64::from(number) + 1, number + 1));
        }
        assert_eq!(wait(&mut locks, count, 1, 1), count <= most);
    }
}

#[test]
fn an_open_file_waits_for_nothing() {
    let mut locks = own_bytes(1);
    let what = (Kind::Shared, range(1, 1));
    let waits = locks.wait((2, 1), file(1), what, Owner::OpenFile(5));
    assert_eq!(waits, Ok(false));
    assert_eq!(locks.wait((1, 1), file(1), what, process(2)), Ok(false));
}

#[test]
fn a_range_is_named_as_by_fcntl() {
    let last = Range::LAST;
    for (base, start, length, expected) in [
        (0, 0, 0, Ok(Range::ALL)),
        (10, -10, 1, Ok(range(0, 0))),
        (10, 5, 20, Ok(range(15, 34))),
        (10, 0, -10, Ok(range(0, 9))),
        (10, 0, -11, Err(Errno::EINVAL)),
        (10, -11, 1, Err(Errno::EINVAL)),
        (10, -11, 0, Err(Errno::EINVAL)),
        (0, 0, -1, Err(Errno::EINVAL)),
        (0, i64::MIN, -1, Err(Errno::EINVAL)),
        (0, i64::MAX, 1, Ok(range(last, last))),
        (0, i64::MAX, 2, Err(Errno::EOVERFLOW)),
        (0, i64::MAX, i64::MIN, Err(Errno::EINVAL)),
        (0, 1, i64::MAX, Ok(range(1, last))),
        (1, i64::MAX, 1, Err(Errno::EOVERFLOW)),
        (u64::MAX, 0, 1, Err(Errno::EOVERFLOW)),
    ] {
        assert_eq!(Range::of(base, start, length), expected, "{base} {start} {length}");
    }
    assert_eq!(range(15, 34).named(), (15, 20));
    assert_eq!(range(15, last).named(), (15, 0));
}

#[test]
fn a_queue_exists_while_calls_use_it() {
    let mut locks = FileLocks::<u8>::new();
    assert!(locks.queue(file(1)).is_none());
    assert_eq!(locks.join_queue(file(1), || Ok(5)), Ok(5));
    assert_eq!(locks.join_queue(file(1), || Err(OutOfMemory)), Ok(5));
    assert_eq!(locks.queue(file(1)), Some(&5));
    locks.leave_queue(file(1));
    assert_eq!(locks.queue(file(1)), Some(&5));
    locks.leave_queue(file(1));
    assert!(locks.is_empty());
    assert_eq!(locks.join_queue(file(1), || Err(OutOfMemory)), Err(OutOfMemory));
    assert!(locks.is_empty());
}
