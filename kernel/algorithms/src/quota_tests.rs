//! Random families, charges, lowered limits and deaths, compared with a plain model; and the
//! proposition.

extern crate std;

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 6400;

fn tree() -> Tree {
    let mut tree = Tree::new();
    tree.set_root(Amounts([LIMIT; KINDS])).unwrap();
    tree
}

fn memory(amount: u64) -> Amounts {
    Amounts::of(Kind::Memory, amount)
}

fn used(tree: &Tree, family: Family) -> u64 {
    tree.state(family).unwrap().1.get(Kind::Memory)
}

/// Charges as much as possible, in pieces of `piece`.
fn grab(tree: &mut Tree, family: Family, piece: u64) -> u64 {
    let mut got = 0;
    while tree.charge(family, &memory(piece)).is_ok() {
        got += piece;
    }
    got
}

#[test]
fn one_hog_takes_three_eighths_and_its_descendants_no_more() {
    let mut tree = tree();
    let hog = tree.add(Family::ROOT).unwrap();
    let children: Vec<_> = (0..20).map(|_| tree.add(hog).unwrap()).collect();
    let total: u64 = children.iter().map(|&child| grab(&mut tree, child, 1)).sum::<u64>()
        + grab(&mut tree, hog, 1);
    assert_eq!(total, LIMIT * 3 / 8);
    assert_eq!(used(&tree, Family::ROOT), total);
    // A second family beside the hog.
    let honest = tree.add(Family::ROOT).unwrap();
    assert_eq!(grab(&mut tree, honest, 1), LIMIT * 3 / 16);
}

#[test]
fn sixteen_families_have_their_floor_whatever_the_others_took() {
    let mut tree = tree();
    let families: Vec<_> =
        (0..GUARANTEED_FAMILIES).map(|_| tree.add(Family::ROOT).unwrap()).collect();
    // All but one are hogs; each takes all it can, in pieces of three sizes.
    for piece in [37, 5, 1] {
        for &hog in &families[1..] {
            grab(&mut tree, hog, piece);
        }
    }
    assert!(grab(&mut tree, families[0], 1) >= LIMIT / FLOOR_DIVISOR);
}

#[test]
fn a_chain_of_processes_that_start_one_and_end_has_a_short_path() {
    let mut tree = tree();
    let mut last = tree.add(Family::ROOT).unwrap();
    for _ in 0..1000 {
        let next = tree.add(last).unwrap();
        tree.process_gone(last);
        last = next;
        assert!(tree.len() <= 3);
    }
    assert!(tree.is_within(last, Family::ROOT));
    // The halved limits of the removed generations remain.
    assert_eq!(tree.state(last).unwrap().0.get(Kind::Memory), 1);
}

#[test]
fn a_chain_of_living_processes_is_refused_at_the_depth_limit() {
    let mut tree = tree();
    let mut last = Family::ROOT;
    for _ in 1..DEPTH_MAX {
        last = tree.add(last).unwrap();
    }
    assert_eq!(tree.add(last), Err(Refusal::TooDeep));
}

#[test]
fn authority_survives_the_death_of_those_between() {
    let mut tree = tree();
    let parent = tree.add(Family::ROOT).unwrap();
    let middle = tree.add(parent).unwrap();
    let [child, sibling] = [(); 2].map(|()| tree.add(middle).unwrap());
    tree.process_gone(middle);
    assert!(tree.is_within(child, parent) && tree.is_within(sibling, parent));
    assert!(!tree.is_within(parent, child) && !tree.is_within(child, sibling));
    tree.process_gone(sibling);
    assert!(tree.is_within(child, parent) && !tree.is_within(sibling, parent));
    assert_eq!(tree.len(), 3, "root, parent, child");
}

#[test]
fn a_process_that_is_gone_is_charged_nothing_and_a_place_has_a_new_life() {
    let mut tree = tree();
    let gone = tree.add(Family::ROOT).unwrap();
    tree.process_gone(gone);
    let next = tree.add(Family::ROOT).unwrap();
    assert_ne!(gone, next);
    assert_eq!(tree.charge(gone, &memory(1)), Err(Refusal::Gone));
    tree.release(gone, &memory(1));
    assert_eq!(used(&tree, next), 0);
}

#[test]
fn a_lowered_limit_holds_for_all_below() {
    let mut tree = tree();
    let family = tree.add(Family::ROOT).unwrap();
    let child = tree.add(family).unwrap();
    assert_eq!(tree.set_limit(family, Kind::Memory, 10), Ok(LIMIT / 2));
    assert_eq!(
        grab(&mut tree, child, 1),
        10 * 3 / 8 + 1,
        "as of a limit of 10: {:?}",
        tree.state(family)
    );
    assert_eq!(tree.set_limit(child, Kind::Memory, u64::MAX), Ok(LIMIT / 4));
    assert_eq!(tree.state(child).unwrap().0.get(Kind::Memory), 10, "not above its parent's");
}

#[test]
fn what_an_ancestor_has_lowered_stays() {
    let mut tree = tree();
    let family = tree.add(Family::ROOT).unwrap();
    let (old, _) = tree.state(family).unwrap();
    let old = old.get(Kind::Memory);
    // The head of the family asserts its limit again, and its parent lowers that before.
    tree.set_limit(family, Kind::Memory, 10).unwrap();
    assert_eq!(tree.lower_limit(family, Kind::Memory, old), Err(Refusal::Over(Kind::Memory)));
    assert_eq!(tree.lower_limit(family, Kind::Memory, 11), Err(Refusal::Over(Kind::Memory)));
    assert_eq!(tree.lower_limit(family, Kind::Memory, 10), Ok(10));
    assert_eq!(tree.lower_limit(family, Kind::Memory, 9), Ok(10));
    let (now, _) = tree.state(family).unwrap();
    assert_eq!((now.get(Kind::Memory), now.get(Kind::Processes)), (9, LIMIT / 2));
    tree.process_gone(family);
    assert_eq!(tree.lower_limit(family, Kind::Memory, 0), Err(Refusal::Gone));
}

#[derive(Clone, Debug)]
enum Step {
    Add { parent: usize },
    End { process: usize },
    Charge { process: usize, kind: usize, amount: u64, forced: bool },
    Release { which: usize },
    Limit { process: usize, kind: usize, limit: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = 0..1000usize;
    let kind = 0..KINDS;
    let step = prop_oneof![
        3 => any.clone().prop_map(|parent| Step::Add { parent }),
        2 => any.clone().prop_map(|process| Step::End { process }),
        8 => (any.clone(), kind.clone(), 0..2000u64, prop::bool::weighted(0.05))
            .prop_map(|(process, kind, amount, forced)| Step::Charge { process, kind, amount, forced }),
        5 => any.clone().prop_map(|which| Step::Release { which }),
        1 => (any, kind, 0..8000u64).prop_map(|(process, kind, limit)| Step::Limit { process, kind, limit }),
    ];
    prop::collection::vec(step, 1..200)
}

/// What the model records of a family: its ancestors including itself, and its charges.
struct Known {
    family: Family,
    line: Vec<Family>,
    lives: bool,
    charges: Vec<Amounts>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn usage_is_always_the_sum_of_the_charges_and_new_ones_stay_below_the_limits(steps in steps()) {
        let mut tree = tree();
        let root = Known { family: Family::ROOT, line: vec![Family::ROOT], lives: true, charges: vec![] };
        let mut known = vec![root];
        for step in steps {
            match step {
                Step::Add { parent } => {
                    let parent = parent % known.len();
                    let (above, lives) = (known[parent].family, known[parent].lives);
                    if lives && let Ok(family) = tree.add(above) {
                        let mut line = known[parent].line.clone();
                        line.push(family);
                        known.push(Known { family, line, lives: true, charges: vec![] });
                    }
                }
                Step::End { process } => {
                    let process = process % known.len();
                    if process > 0 {
                        known[process].lives = false;
                        tree.process_gone(known[process].family);
                    }
                }
                Step::Charge { process, kind, amount, forced } => {
                    let process = process % known.len();
                    if !known[process].lives {
                        continue;
                    }
                    let amounts = Amounts::of(Kind::ALL[kind], amount);
                    let family = known[process].family;
                    let room = tree.room(family, Kind::ALL[kind]);
                    if !forced && amount > 0 {
                        prop_assert_eq!(tree.clone().charge(family, &amounts).is_ok(), amount <= room);
                    }
                    let taken = if forced { tree.charge_forced(family, &amounts) } else { tree.charge(family, &amounts) };
                    if taken.is_ok() {
                        known[process].charges.push(amounts);
                    }
                    if taken.is_ok() && !forced && amount > 0 {
                        for above in &known[process].line {
                            if let Some((limit, used)) = tree.state(*above) {
                                prop_assert!(used.0[kind] <= limit.0[kind]);
                            }
                        }
                    }
                }
                Step::Release { which } => {
                    let process = which % known.len();
                    if let Some(amounts) = known[process].charges.pop() {
                        tree.release(known[process].family, &amounts);
                    }
                }
                Step::Limit { process, kind, limit } => {
                    let process = process % known.len();
                    if process > 0 && known[process].lives {
                        tree.set_limit(known[process].family, Kind::ALL[kind], limit).unwrap();
                    }
                }
            }
            // The usage of every remaining family is the sum over itself and its descendants.
            for one in &known {
                let Some((_, used)) = tree.state(one.family) else {
                    prop_assert!(!one.lives);
                    continue;
                };
                let mut sum = Amounts::default();
                for below in known.iter().filter(|below| below.line.contains(&one.family)) {
                    below.charges.iter().for_each(|charge| sum.add(charge));
                    if below.lives && one.lives {
                        prop_assert!(tree.is_within(below.family, one.family));
                    }
                }
                prop_assert_eq!(used, sum);
            }
            // `is_within` is true for ancestors only.
            for one in &known {
                for other in known.iter().filter(|other| other.lives && one.lives) {
                    prop_assert_eq!(tree.is_within(one.family, other.family), one.line.contains(&other.family));
                }
            }
            let nodes = known.iter().filter(|one| one.lives || !one.charges.is_empty()).count();
            prop_assert!(tree.len() <= 2 * nodes, "{} nodes for {nodes} families", tree.len());
        }
    }
}

/// Families of ended processes to which something is charged, more than fit into a chunk.
fn remains(tree: &mut Tree, count: usize) -> Vec<Family> {
    let leave = |_| {
        let family = tree.add(Family::ROOT).unwrap();
        tree.charge_forced(family, &memory(1)).unwrap();
        tree.process_gone(family);
        family
    };
    (0..count).map(leave).collect()
}

#[test]
fn nodes_of_families_that_are_gone_take_no_memory() {
    const COUNT: usize = 1000;
    let mut tree = tree();
    for step in [1, 7, 32, 33, 999] {
        let families = remains(&mut tree, COUNT);
        assert_eq!(tree.len(), COUNT + 1);
        assert!(tree.nodes.chunks() <= COUNT / 32 + 2, "{} chunks", tree.nodes.chunks());
        // In another order than they came, so that chunks with room come and go everywhere.
        let mut left = families.clone();
        while !left.is_empty() {
            let at = step % left.len();
            tree.release(left.swap_remove(at), &memory(1));
            assert!(left.iter().all(|&family| tree.state(family).is_some()));
        }
        assert_eq!((tree.len(), tree.nodes.chunks()), (1, 1));
        assert!(families.iter().all(|&family| tree.state(family).is_none()));
    }
}

/// A process that comes and ends beside a full chunk does not allocate one each time.
#[test]
fn an_empty_chunk_is_kept_if_all_others_are_full() {
    let mut tree = tree();
    remains(&mut tree, 31);
    for _ in 0..3 {
        let family = tree.add(Family::ROOT).unwrap();
        assert_eq!(tree.nodes.chunks(), 2);
        tree.process_gone(family);
        assert_eq!((tree.len(), tree.nodes.chunks()), (32, 2));
    }
}
