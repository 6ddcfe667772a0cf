extern crate std;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const LIMIT: usize = 64;

fn kin(pairs: &[(Id, Id)]) -> Kin {
    let mut kin = Kin::new();
    for &(id, parent) in pairs {
        kin.insert(id, parent, Places::try_new().unwrap());
    }
    kin
}

fn place(kin: &Kin, id: Id) -> (Id, Id, Id) {
    let found = kin.get(id).unwrap();
    (found.parent, found.group, found.session)
}

#[test]
fn a_child_is_in_the_group_of_its_parent() {
    let mut kin = kin(&[(1, 0), (2, 1), (3, 2)]);
    assert_eq!(place(&kin, 1), (0, 1, 1));
    assert_eq!(place(&kin, 3), (2, 1, 1));
    kin.set_group(2, 3, 3).unwrap();
    kin.insert(4, 3, Places::try_new().unwrap());
    assert_eq!(place(&kin, 4), (3, 3, 1));
    assert_eq!(kin.member_from(3, 0), Some(3));
    assert_eq!(kin.member_from(3, 4), Some(4));
    assert_eq!(kin.member_from(3, 5), None);
    assert_eq!(kin.member_from(2, 0), None);
}

#[test]
fn groups_change_as_on_linux() {
    // 1 has the children 2 and 3, 2 has 4, and 5 is in a session of its own.
    let mut kin = kin(&[(1, 0), (2, 1), (3, 1), (4, 2), (5, 1)]);
    kin.begin_session(5).unwrap();
    assert_eq!(place(&kin, 5), (1, 5, 5));
    assert_eq!(kin.set_group(1, 9, 9), Err(Errno::ESRCH));
    assert_eq!(kin.set_group(1, 4, 4), Err(Errno::ESRCH), "a grandchild");
    assert_eq!(kin.set_group(2, 1, 2), Err(Errno::ESRCH), "the parent");
    assert_eq!(kin.set_group(1, 5, 5), Err(Errno::EPERM), "another session");
    assert_eq!(kin.set_group(1, 1, 1), Err(Errno::EPERM), "the leader of a session");
    assert_eq!(kin.set_group(1, 2, 3), Err(Errno::EPERM), "no such group");
    assert_eq!(kin.set_group(1, 2, 5), Err(Errno::EPERM), "a group of another session");
    kin.set_group(1, 3, 3).unwrap();
    kin.set_group(1, 2, 3).unwrap();
    assert_eq!(place(&kin, 2), (1, 3, 1));
    kin.set_group(2, 2, 1).unwrap();
    kin.has_executed(2);
    assert_eq!(kin.set_group(1, 2, 3), Err(Errno::EACCES));
    kin.set_group(2, 2, 2).unwrap();
    assert_eq!(kin.begin_session(2), Err(Errno::EPERM), "the leader of a group");
    kin.set_group(2, 2, 3).unwrap();
    kin.begin_session(2).unwrap();
    assert_eq!(place(&kin, 2), (1, 2, 2));
}

#[test]
fn a_parent_learns_each_thing_once() {
    let mut kin = kin(&[(1, 0), (2, 1), (3, 1), (4, 2)]);
    let all = News::ALL.iter().fold(0, |all, news| all | news.bit());
    assert_eq!(kin.find_news(4, Which::Any, all, false), Err(Errno::ECHILD));
    assert_eq!(kin.find_news(1, Which::Child(4), all, false), Err(Errno::ECHILD));
    assert_eq!(kin.find_news(1, Which::Group(7), all, false), Err(Errno::ECHILD));
    assert_eq!(kin.find_news(1, Which::Any, all, false), Ok(Found::Nothing));
    kin.set_news(2, Some(News::Stopped));
    assert_eq!(kin.find_news(1, Which::Any, News::Ended.bit(), false), Ok(Found::Nothing));
    kin.set_group(1, 3, 3).unwrap();
    assert_eq!(kin.find_news(1, Which::Group(3), all, false), Ok(Found::Nothing));
    kin.set_group(1, 2, 3).unwrap();
    for which in [Which::Any, Which::Child(2), Which::Group(3)] {
        assert_eq!(kin.find_news(1, which, all, false), Ok(Found::News((2, News::Stopped))));
    }
    kin.set_news(2, Some(News::Continued));
    assert_eq!(kin.find_news(1, Which::Any, News::Stopped.bit(), false), Ok(Found::Nothing));
    kin.set_news(3, Some(News::Ended));
    assert_eq!(kin.find_news(1, Which::Any, all, false), Ok(Found::News((3, News::Ended))));
    kin.set_news(3, Some(News::Stopped));
    kin.set_news(3, None);
    assert_eq!(
        kin.find_news(1, Which::Child(3), all, false),
        Ok(Found::News((3, News::Ended))),
        "the end stays"
    );
    kin.remove(3);
    kin.set_news(2, None);
    assert_eq!(kin.find_news(1, Which::Any, all, false), Ok(Found::Nothing));
    kin.orphan(2);
    assert_eq!(kin.find_news(1, Which::Any, all, false), Err(Errno::ECHILD));
    assert_eq!(place(&kin, 2).0, 0);
}

#[test]
fn a_group_without_a_shell_is_orphaned() {
    // A shell, 1, with a job of two processes, and a grandchild.
    let mut kin = kin(&[(1, 0), (2, 1), (3, 1), (4, 3)]);
    assert!(kin.is_orphaned(1, LIMIT));
    kin.set_group(1, 2, 2).unwrap();
    kin.set_group(1, 3, 2).unwrap();
    kin.set_group(3, 4, 2).unwrap();
    assert!(!kin.is_orphaned(2, LIMIT));
    // The shell can make 2 and 3 go on; 4 is no reason to.
    assert!(!kin.has_shell(1) && kin.has_shell(2) && kin.has_shell(3) && !kin.has_shell(4));
    kin.set_news(2, Some(News::Ended));
    assert!(kin.has_shell(2), "it had");
    assert!(!kin.is_orphaned(2, LIMIT));
    kin.remove(3);
    assert!(kin.is_orphaned(2, LIMIT));
    assert!(kin.is_orphaned(77, LIMIT));
}

/// The maps agree with a simple model after any sequence of operations.
#[derive(Clone, Debug)]
enum Step {
    Insert(Id),
    Remove(Id),
    Group(Id, Id, Id),
    Session(Id),
    Orphan(Id),
    News(Id, Option<News>),
}

#[test]
fn a_child_is_not_learned_of_before_its_signal() {
    let mut kin = kin(&[(1, 0), (2, 1), (3, 1)]);
    let find = |kin: &Kin, which, early| kin.find_news(1, which, u8::MAX, early);
    for news in [News::Stopped, News::Continued] {
        kin.set_news(2, Some(news));
        kin.signal_is_due(2);
    }
    assert_eq!(find(&kin, Which::Any, false), Ok(Found::SignalDue));
    assert_eq!(find(&kin, Which::Any, true), Ok(Found::News((2, News::Continued))));
    assert_eq!(find(&kin, Which::Child(3), false), Ok(Found::Nothing), "another child");
    kin.signal_is_sent(2);
    assert_eq!(find(&kin, Which::Child(2), false), Ok(Found::SignalDue), "the second one");
    kin.signal_is_sent(2);
    assert_eq!(find(&kin, Which::Any, false), Ok(Found::News((2, News::Continued))));
    // One that was waited for early, and is gone when its signal is sent.
    kin.set_news(3, Some(News::Ended));
    kin.signal_is_due(3);
    kin.remove(3);
    kin.signal_is_sent(3);
    assert_eq!(find(&kin, Which::Child(3), false), Err(Errno::ECHILD));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let news = prop_oneof![
        Just(None),
        Just(Some(News::Ended)),
        Just(Some(News::Stopped)),
        Just(Some(News::Continued))
    ];
    let id = || 1u32..12;
    proptest::collection::vec(
        prop_oneof![
            4 => id().prop_map(Step::Insert),
            1 => id().prop_map(Step::Remove),
            4 => (id(), id(), id()).prop_map(|(a, b, c)| Step::Group(a, b, c)),
            1 => id().prop_map(Step::Session),
            1 => id().prop_map(Step::Orphan),
            4 => (id(), news).prop_map(|(id, news)| Step::News(id, news)),
        ],
        0..80,
    )
}

proptest! {
    #[test]
    fn all_places_agree(steps in steps()) {
        let mut kin = Kin::new();
        let mut next = 1;
        for step in steps {
            match step {
                Step::Insert(parent) => {
                    let parent = if kin.get(parent).is_some() { parent } else { 0 };
                    kin.insert(next, parent, Places::try_new().unwrap());
                    next += 1;
                }
                Step::Remove(id) => kin.remove(id),
                Step::Group(caller, id, group) => drop(kin.set_group(caller, id, group)),
                Step::Session(id) => drop(kin.begin_session(id)),
                Step::Orphan(id) => kin.orphan(id),
                Step::News(id, news) => kin.set_news(id, news),
            }
            let mut all = BTreeMap::new();
            kin.all.for_each(|&id, kinship| _ = all.insert(id, *kinship));
            let places: usize = kin.news.iter().map(Map::len).sum();
            prop_assert_eq!(places + kin.quiet.len(), all.len());
            prop_assert_eq!((kin.members.len(), kin.children.len()), (all.len(), all.len()));
            for (&id, kinship) in &all {
                let key = (kinship.parent, kinship.group, id);
                prop_assert!(kin.members.contains_key(&(kinship.group, id)));
                prop_assert!(kin.children.contains_key(&key));
                match kinship.news {
                    Some(news) => prop_assert!(kin.news[news as usize].contains_key(&key)),
                    None => prop_assert!(kin.quiet.contains_key(&(0, 0, id))),
                }
                // A group is in one session.
                for other in all.values().filter(|other| other.group == kinship.group) {
                    prop_assert_eq!(other.session, kinship.session);
                }
            }
        }
    }
}
