extern crate std;

use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

type Names = Tree<u64, ()>;

fn tree() -> Names {
    Tree::new(ROOT, [1, 2]).unwrap()
}

/// All paths below a directory, with the node of each.
fn paths(tree: &Names, directory: u64, above: &str, all: &mut BTreeMap<String, u64>) {
    let mut after = 0;
    while let Some(Listed { key, name, number, value }) = tree.list(directory, after).unwrap() {
        assert_eq!(number, *value);
        assert!(key >= KEYS_MIN && key > after);
        after = key;
        let path = std::format!("{above}/{name}");
        if tree.is_directory(number) {
            let (parent, its_name) = tree.place(number).unwrap().unwrap();
            assert_eq!((*parent, its_name), (directory, name));
            assert_eq!(tree.look_up(number, ".."), Ok(&directory));
            paths(tree, number, &path, all);
        }
        assert_eq!(all.insert(path, number), None);
    }
}

/// The model: each path, with the node and whether it is a directory.
#[derive(Default)]
struct Model {
    paths: BTreeMap<String, (u64, bool)>,
    last: u64,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap()
}

impl Model {
    fn kind(&self, path: &str) -> Option<bool> {
        if path.is_empty() { Some(true) } else { self.paths.get(path).map(|node| node.1) }
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = std::format!("{path}/");
        !self.paths.keys().any(|other| other.starts_with(&below))
    }

    fn parent(&self, path: &str) -> Result<(), Errno> {
        let above = split(path).0;
        let ends = above.match_indices('/').map(|(end, _)| end).skip(1).chain([above.len()]);
        for end in ends {
            match self.kind(&above[..end]) {
                None => return Err(Errno::ENOENT),
                Some(false) => return Err(Errno::ENOTDIR),
                Some(true) => {}
            }
        }
        Ok(())
    }

    fn insert(&mut self, path: &str, is_directory: bool) -> Result<(), Errno> {
        self.parent(path)?;
        if self.paths.contains_key(path) {
            return Err(Errno::EEXIST);
        }
        self.last += 1;
        self.paths.insert(path.to_string(), (self.last, is_directory));
        Ok(())
    }

    fn remove(&mut self, path: &str, of_directory: bool) -> Result<(), Errno> {
        self.parent(path)?;
        match (self.kind(path), of_directory) {
            (None, _) => return Err(Errno::ENOENT),
            (Some(true), false) => return Err(Errno::EISDIR),
            (Some(false), true) => return Err(Errno::ENOTDIR),
            (Some(true), true) if !self.is_empty(path) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.paths.remove(path);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, no_replace: bool) -> Result<(), Errno> {
        self.parent(from)?;
        self.parent(to)?;
        let &(number, moves_directory) = self.paths.get(from).ok_or(Errno::ENOENT)?;
        if let Some(&(replaced, is_directory)) = self.paths.get(to) {
            if no_replace {
                return Err(Errno::EEXIST);
            }
            if replaced == number {
                return Ok(());
            }
            match (moves_directory, is_directory) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                _ => {}
            }
        }
        let below = std::format!("{from}/");
        if moves_directory && to.starts_with(&below) {
            return Err(Errno::EINVAL);
        }
        if self.kind(to) == Some(true) && !self.is_empty(to) {
            return Err(Errno::ENOTEMPTY);
        }
        let moved: Vec<_> = self
            .paths
            .iter()
            .filter(|(path, _)| *path == from || path.starts_with(&below))
            .map(|(path, node)| (path.clone(), *node))
            .collect();
        for (path, _) in &moved {
            self.paths.remove(path);
        }
        for (path, node) in moved {
            self.paths.insert(std::format!("{to}{}", &path[from.len()..]), node);
        }
        Ok(())
    }

    fn link(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        self.parent(from)?;
        let &(number, is_directory) = self.paths.get(from).ok_or(Errno::ENOENT)?;
        if is_directory {
            return Err(Errno::EPERM);
        }
        self.parent(to)?;
        if self.paths.contains_key(to) {
            return Err(Errno::EEXIST);
        }
        self.paths.insert(to.to_string(), (number, false));
        Ok(())
    }
}

/// The directory and the last name of a path, walked in the tree.
fn walk<'a>(tree: &Names, path: &'a str) -> Result<(u64, &'a str), Errno> {
    let (above, name) = split(path);
    let mut at = ROOT;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        at = *tree.look_up(at, part)?;
    }
    tree.look_up(at, ".")?;
    Ok((at, name))
}

fn path() -> impl Strategy<Value = String> {
    "(/[a-c]){1,4}"
}

fn apply(tree: &mut Names, what: u8, one: &str, two: &str) -> Result<(), Errno> {
    match what {
        0 | 1 => {
            let (at, name) = walk(tree, one)?;
            tree.insert(at, name, what == 0, (), Ok).map(drop)
        }
        2 | 3 => {
            let (at, name) = walk(tree, one)?;
            tree.remove(at, name, what == 2).map(drop)
        }
        4 | 5 => {
            let (from, to) = (walk(tree, one)?, walk(tree, two)?);
            tree.rename(from, to, what == 5, ()).map(drop)
        }
        _ => {
            let (at, name) = walk(tree, one)?;
            let number = *tree.look_up(at, name)?;
            if tree.is_directory(number) {
                return Err(Errno::EPERM);
            }
            let (to, new_name) = walk(tree, two)?;
            tree.link(to, new_name, number, ())
        }
    }
}

proptest! {
    #[test]
    fn it_does_what_a_list_of_paths_does(steps in prop::collection::vec((0..7u8, path(), path()), 1..120)) {
        let (mut tree, mut model) = (tree(), Model { last: ROOT, ..Model::default() });
        for (what, one, two) in steps {
            let expected = match what {
                0 | 1 => model.insert(&one, what == 0),
                2 | 3 => model.remove(&one, what == 2),
                4 | 5 => model.rename(&one, &two, what == 5),
                _ => model.link(&one, &two),
            };
            prop_assert_eq!(apply(&mut tree, what, &one, &two), expected, "{} {} {}", what, one, two);
            let mut all = BTreeMap::new();
            paths(&tree, ROOT, "", &mut all);
            let numbers: BTreeMap<_, _> = model.paths.iter().map(|(path, node)| (path.clone(), node.0)).collect();
            prop_assert_eq!(&all, &numbers);
            for (path, (number, is_directory)) in &model.paths {
                let below = std::format!("{path}/");
                let links = if *is_directory {
                    2 + model.paths.iter().filter(|(other, node)| {
                        node.1 && other.strip_prefix(&below).is_some_and(|rest| !rest.contains('/'))
                    }).count()
                } else {
                    numbers.values().filter(|other| *other == number).count()
                };
                prop_assert_eq!(tree.links(*number) as usize, links, "{}", path);
            }
        }
    }
}

/// A listing with removals and creations in between shows each other name exactly once.
#[test]
fn a_listing_misses_nothing_that_stays() {
    let mut tree = tree();
    for name in 0..500 {
        tree.insert(ROOT, &std::format!("stays {name}"), false, (), Ok).unwrap();
        tree.insert(ROOT, &std::format!("goes {name}"), false, (), Ok).unwrap();
    }
    let (mut after, mut seen, mut step) = (0, BTreeMap::new(), 0);
    while let Some(Listed { key, name, .. }) = tree.list(ROOT, after).unwrap() {
        after = key;
        *seen.entry(name.to_string()).or_insert(0) += 1;
        if step < 500 {
            tree.remove(ROOT, &std::format!("goes {step}"), false).unwrap();
            tree.insert(ROOT, &std::format!("comes {step}"), false, (), Ok).unwrap();
        }
        step += 1;
    }
    assert!((0..500).all(|name| seen.get(&std::format!("stays {name}")) == Some(&1)));
    assert!(seen.values().all(|&count| count == 1));
}

#[test]
fn the_names_of_directories_themselves() {
    let mut tree = tree();
    let a = tree.insert(ROOT, "a", true, (), Ok).unwrap();
    assert_eq!(tree.look_up(a, "."), Ok(&a));
    assert_eq!(tree.look_up(ROOT, ".."), Ok(&ROOT));
    assert_eq!(tree.insert(a, ".", false, (), Ok), Err(Errno::EEXIST));
    assert_eq!(tree.remove(ROOT, ".", true).err(), Some(Errno::EINVAL));
    assert_eq!(tree.remove(a, "..", true).err(), Some(Errno::ENOTEMPTY));
    assert_eq!(tree.remove(a, "..", false).err(), Some(Errno::EISDIR));
    assert_eq!(tree.rename((a, ".."), (a, "b"), false, ()).err(), Some(Errno::EBUSY));
    assert_eq!(tree.rename((ROOT, "a"), (a, "b"), false, ()).err(), Some(Errno::EINVAL));
    assert_eq!(tree.remove(ROOT, "a", true).unwrap().value, Some(a));
    // It may still be the current directory of a process.
    assert_eq!(tree.look_up(a, "."), Err(Errno::ENOENT));
    assert_eq!(tree.insert(a, "b", false, (), Ok), Err(Errno::ENOENT));
    assert_eq!(tree.place(a).err(), Some(Errno::ENOENT));
}

/// A node with several names is removed with the last of them.
#[test]
fn a_node_lives_as_long_as_it_has_a_name() {
    let mut tree = tree();
    let file = tree.insert(ROOT, "one", false, (), Ok).unwrap();
    tree.link(ROOT, "two", file, ()).unwrap();
    assert_eq!(tree.remove(ROOT, "one", false).unwrap().value, None);
    assert_eq!(tree.look_up(ROOT, "two"), Ok(&file));
    let other = tree.insert(ROOT, "three", false, (), Ok).unwrap();
    let removed = tree.rename((ROOT, "three"), (ROOT, "two"), false, ()).unwrap();
    assert_eq!(removed.value, Some(file));
    assert_eq!((tree.look_up(ROOT, "two"), tree.links(file)), (Ok(&other), 0));
    assert_eq!(tree.link(ROOT, "four", file, ()), Err(Errno::ENOENT));
}

#[test]
fn a_directory_cannot_be_moved_too_deep() {
    let mut tree = tree();
    let mut at = ROOT;
    for _ in 0..LEVELS_MAX {
        at = tree.insert(at, "d", true, (), Ok).unwrap();
    }
    tree.insert(ROOT, "moved", true, (), Ok).unwrap();
    assert_eq!(tree.rename((ROOT, "moved"), (at, "x"), false, ()).err(), Some(Errno::ENAMETOOLONG));
    assert!(tree.look_up(ROOT, "moved").is_ok());
}
