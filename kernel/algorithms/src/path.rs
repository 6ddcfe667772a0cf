//! Paths: their components, one after another, with symbolic links put in their place.
//!
//! A [`Walk`] is only text and counters. Its user looks each component up and decides what to do
//! with what it finds.

use core::ops::Range;

use cops_abi::Errno;
use cops_abi::syscall::PATH_BYTES_MAX;
use cops_fallible::{List, Text};

/// Maximum number of symbolic links in one walk, as on Linux.
pub const LINKS_MAX: u32 = 40;

/// A path with the part of it that has been walked.
#[derive(Debug)]
pub struct Walk {
    /// As bytes, because a `Text` examines all of them whenever it is used.
    path: List<u8>,
    /// Where the next component is.
    name: Range<usize>,
    /// Where the one after it begins, behind all slashes in between. Both are kept, because a path
    /// may consist of four thousand slashes.
    after: usize,
    links: u32,
}

/// The next component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component<'a> {
    /// The name, which may be `.` or `..`. `.` for what follows the last slash of `/`.
    pub name: &'a str,
    /// Whether it is the last one.
    pub is_last: bool,
    /// Whether a slash follows, so that the path names a directory.
    pub has_slash: bool,
}

impl Walk {
    /// Begins to walk `path`.
    ///
    /// # Errors
    /// `ENOENT` for an empty path.
    pub fn new(path: Text) -> Result<Self, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let mut walk = Self { path: List::new(), name: 0..0, after: 0, links: 0 };
        walk.begin(path.into_bytes());
        Ok(walk)
    }

    /// Whether the walk begins at the root.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        self.path.first() == Some(&b'/')
    }

    /// Number of bytes of the path, with the targets of symbolic links in their places.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.path.len()
    }

    /// Begins anew with `path`.
    fn begin(&mut self, path: List<u8>) {
        self.after = slashes(&path);
        self.path = path;
        self.advance();
    }

    /// The next component.
    #[must_use]
    pub fn next(&self) -> Component<'_> {
        let name = self.path.get(self.name.clone()).unwrap_or_default();
        Component {
            // A part of a string between two slashes is one too.
            name: if name.is_empty() { "." } else { core::str::from_utf8(name).unwrap_or(".") },
            is_last: self.after == self.path.len(),
            has_slash: self.name.end < self.path.len() || name.is_empty(),
        }
    }

    /// Goes on behind the next component.
    pub fn advance(&mut self) {
        let rest = &self.path[self.after..];
        let length = rest.iter().take_while(|&&byte| byte != b'/').count();
        self.name = self.after..self.after + length;
        self.after += length + slashes(&rest[length..]);
    }

    /// Puts `target` in the place of the next component, which is a symbolic link. Returns whether
    /// the walk goes on at the root.
    ///
    /// # Errors
    /// `ELOOP`, `ENOENT` for an empty target, `ENAMETOOLONG`, `ENOMEM`.
    pub fn expand(&mut self, target: &str) -> Result<bool, Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::ELOOP);
        }
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let rest = self.path.get(self.name.end..).unwrap_or_default();
        if target.len() + rest.len() >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut path = List::new();
        path.try_extend_from_slice(target.as_bytes())?;
        path.try_extend_from_slice(rest)?;
        self.begin(path);
        Ok(self.is_absolute())
    }
}

/// Number of slashes with which `bytes` begin. Eight are looked at together.
fn slashes(bytes: &[u8]) -> usize {
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);
    let (eights, _) = bytes.as_chunks::<8>();
    let start = 8 * eights
        .iter()
        .position(|&eight| u64::from_ne_bytes(eight) != SLASHES)
        .unwrap_or(eights.len());
    start + bytes[start..].iter().take_while(|&&byte| byte == b'/').count()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn walk(path: &str) -> Walk {
        let text = Text::try_from_str(path).unwrap();
        Walk::new(text).unwrap()
    }

    fn components(path: &str) -> Vec<(String, bool, bool)> {
        let mut walk = walk(path);
        let mut all = Vec::new();
        loop {
            let Component { name, is_last, has_slash } = walk.next();
            all.push((name.to_string(), is_last, has_slash));
            if is_last {
                return all;
            }
            walk.advance();
        }
    }

    #[test]
    fn components_are_those_between_slashes() {
        let expect = |path: &str, expected: &[(&str, bool, bool)]| {
            let expected: Vec<_> = expected
                .iter()
                .map(|&(name, last, slash)| (name.to_string(), last, slash))
                .collect();
            assert_eq!(components(path), expected, "{path}");
        };
        expect("a", &[("a", true, false)]);
        expect("/a//b/", &[("a", false, true), ("b", true, true)]);
        expect("/", &[(".", true, true)]);
        expect("///", &[(".", true, true)]);
        expect("./..", &[(".", false, true), ("..", true, false)]);
    }

    #[test]
    fn any_number_of_slashes_is_one() {
        for count in 1..40 {
            let many = "/".repeat(count);
            assert_eq!(slashes(many.as_bytes()), count);
            let expected = [("a", false, true), ("b", true, true)];
            let expected = expected.map(|(name, last, slash)| (name.to_string(), last, slash));
            assert_eq!(components(&std::format!("{many}a{many}b{many}")), expected, "{count}");
        }
    }

    #[test]
    fn forty_links_are_followed_and_no_more() {
        let mut loops = walk("/x/y");
        for _ in 0..LINKS_MAX {
            assert_eq!(loops.expand("x"), Ok(false));
            assert_eq!(loops.next().name, "x");
        }
        assert_eq!(loops.expand("x"), Err(Errno::ELOOP));
        assert_eq!(walk("x").expand(""), Err(Errno::ENOENT));
        let long = "x/".repeat(PATH_BYTES_MAX / 2);
        assert_eq!(walk("x").expand(&long), Err(Errno::ENAMETOOLONG));
        assert!(Walk::new(Text::new()).is_err());
    }

    /// Links in one directory of directories `a` and `b`, which are below themselves.
    fn resolve(path: &str, links: &BTreeMap<&str, String>) -> Result<Vec<String>, Errno> {
        let mut walk = walk(path);
        let mut place: Vec<String> = Vec::new();
        loop {
            let Component { name, is_last, .. } = walk.next();
            match name {
                "." => {}
                ".." => drop(place.pop()),
                name => match links.get(name) {
                    Some(target) => {
                        if walk.expand(target)? {
                            place.clear();
                        }
                        continue;
                    }
                    None => place.push(name.to_string()),
                },
            }
            if is_last {
                return Ok(place);
            }
            walk.advance();
        }
    }

    /// The same by recursion, with the number of links that may still be followed.
    fn model(
        path: &str,
        links: &BTreeMap<&str, String>,
        place: &mut Vec<String>,
        left: &mut u32,
    ) -> bool {
        if path.starts_with('/') {
            place.clear();
        }
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." => drop(place.pop()),
                name => match links.get(name) {
                    Some(target) => {
                        if *left == 0 {
                            return false;
                        }
                        *left -= 1;
                        if !model(target, links, place, left) {
                            return false;
                        }
                    }
                    None => place.push(name.to_string()),
                },
            }
        }
        true
    }

    proptest! {
        #[test]
        fn links_are_walked_in_place(
            path in "/?((a|b|x|y|\\.|\\.\\.)/){0,6}(a|x|y)/?",
            x in "/?((a|b|y|\\.\\.)/){0,3}(a|y)",
            y in "/?((a|b|x|\\.\\.)/){0,3}(b|x)",
        ) {
            let links = BTreeMap::from([("x", x), ("y", y)]);
            let (mut place, mut left) = (Vec::new(), LINKS_MAX);
            let expected = model(&path, &links, &mut place, &mut left).then_some(place);
            prop_assert_eq!(resolve(&path, &links).ok(), expected);
        }
    }
}
