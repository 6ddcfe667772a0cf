//! A profile: instructions by call path.
//!
//! Its file has the form that flame graph tools call folded stacks: a line for each path, frames
//! separated by semicolons, then a space and the number of instructions. A first line, `# requests
//! N`, says that N requests were served in that time.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use super::images::Images;
use super::kinds::{self, Kinds};
use super::record::Record;
use crate::error::{Failure, Outcome};

/// The frame of a trap.
const TRAP: &str = "kernel:(trap)";

/// The function in which a hart sleeps.
const RUN_HART: &str = "kernel:cops_kernel::sched::executor::run_hart";

/// The program that each path belongs to, as far as it is known: a block of the vDSO belongs to the
/// program that calls it.
fn programs_of_nodes(record: &Record, programs: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut of_nodes = vec![None; record.nodes.len()];
    for count in record.counts.iter().filter(|count| programs[count.block].is_some()) {
        let mut node = count.node;
        // The root is the path of all programs.
        while record.nodes[node].parent != node && of_nodes[node].is_none() {
            of_nodes[node] = programs[count.block];
            node = record.nodes[node].parent;
        }
    }
    // A caller has a smaller number than its callees.
    for (number, node) in record.nodes.iter().enumerate() {
        of_nodes[number] = of_nodes[number].or(of_nodes[node.parent]);
    }
    of_nodes
}

/// A profile.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Requests that were served, if they were counted.
    pub requests: Option<u64>,
    /// Instructions by path. A frame is `SIDE:FUNCTION`.
    pub paths: BTreeMap<Vec<String>, i64>,
    /// The same by kind of instruction. A file does not have it.
    pub kinds: BTreeMap<Vec<String>, Kinds>,
}

impl Profile {
    /// The instructions of a record. `weigh` makes one number of those that a count had at each
    /// moment and at the end.
    pub fn of(record: &Record, images: &Images, weigh: impl Fn(&[u64]) -> i64) -> Self {
        let programs = images.programs_of(&record.blocks);
        let mut names: HashMap<(u64, Option<usize>), String> = HashMap::new();
        let mut by_kind: BTreeMap<Vec<String>, Kinds> = BTreeMap::new();
        let programs_of_nodes = programs_of_nodes(record, &programs);
        for count in &record.counts {
            let times = weigh(&count.times);
            if times == 0 {
                continue;
            }
            let program = programs[count.block].or_else(|| programs_of_nodes[count.node]);
            let mut name = |address| {
                let known = names.entry((address, program));
                known.or_insert_with(|| images.function(address, program)).clone()
            };
            let mut path = Vec::new();
            for node in record.path(count.node) {
                // In the call, because a call that does not return may be a function's last
                // instruction; or the interrupted instruction, marked by its lowest bit.
                let is_trap = node.return_address & 1 != 0;
                path.push(name(node.return_address - 1));
                path.extend(is_trap.then(|| TRAP.to_owned()));
            }
            let block = &record.blocks[count.block];
            path.push(name(block.address));
            let kinds = kinds::of(block, count.instructions).map(|number| times * number);
            kinds::add(by_kind.entry(path).or_default(), &kinds);
        }
        by_kind.retain(|_, kinds| kinds.iter().any(|&number| number != 0));
        let all = |(path, kinds): (&Vec<String>, &Kinds)| (path.clone(), kinds.iter().sum());
        let paths = by_kind.iter().map(all).filter(|&(_, number)| number != 0).collect();
        Self { requests: None, paths, kinds: by_kind }
    }

    /// What a hart executes from its decision to sleep until it is awake and has handled the
    /// interrupt, all of which the kernel does not count.
    pub fn going_to_sleep(&self) -> i64 {
        let is_it = |path: &[String]| {
            let Some(at) = path.iter().position(|frame| frame == RUN_HART) else { return false };
            path.get(at + 1).is_none_or(|callee| {
                callee.starts_with("kernel:") || callee.ends_with("prepare_park")
            })
        };
        self.paths.iter().filter(|(path, _)| is_it(path)).map(|(_, count)| count).sum()
    }

    /// By which counts are divided to be per request, if requests were counted.
    pub fn unit(&self) -> f64 {
        self.requests.unwrap_or(1).max(1) as f64
    }

    /// All instructions.
    pub fn total(&self) -> i64 {
        self.paths.values().sum()
    }

    /// As the text of a file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        if let Some(requests) = self.requests {
            let _ = writeln!(text, "# requests {requests}");
        }
        for (path, instructions) in &self.paths {
            let _ = writeln!(text, "{} {instructions}", path.join(";"));
        }
        text
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Outcome<Self> {
        let mut profile = Self::default();
        // Of the numbers' absolute values: no sum of some of them overflows if this does not.
        let mut all = 0_i64;
        for line in text.lines() {
            let mut read = || {
                if let Some(requests) = line.strip_prefix("# requests ") {
                    profile.requests = Some(requests.parse().ok()?);
                    return Some(());
                }
                let (path, instructions) = line.rsplit_once(' ')?;
                let instructions: i64 = instructions.parse().ok()?;
                all = all.checked_add(instructions.checked_abs()?)?;
                let path = path.split(';').map(str::to_owned).collect();
                *profile.paths.entry(path).or_default() += instructions;
                Some(())
            };
            read()
                .ok_or_else(|| Failure::new(format!("this is no line of a profile: {line:?}")))?;
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let text = "# requests 7\nkernel:a;vdso:<b as c>::d 12\nkernel:a -3\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!((profile.requests, profile.total()), (Some(7), 9));
        assert_eq!(Profile::parse(&profile.to_text()).unwrap(), profile);
        let too_many = format!("a {}\na 1", i64::MAX);
        let too_few = format!("a {}", i64::MIN);
        for wrong in ["a", "a b", "# a", "# requests x", "# requests -1", &too_many, &too_few] {
            assert!(Profile::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
