//! The kernel's table of portions, as it prints it when it was booted with `portions=on`: what it
//! executed between two points at which something more urgent can take the hart (SPEC 3.13a).

use std::collections::BTreeMap;

use super::command::{Boot, Idle};

/// Maximum number of instructions of one portion.
pub const LIMIT: u64 = 50_000;

/// The longest portion of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// System call, fault, poll of a service, ...
    pub kind: String,
    /// Which call, or which service.
    pub what: String,
    /// Instructions.
    pub longest: u64,
    /// Number of portions.
    pub count: u64,
    /// About the longest portion, as the kernel prints it.
    pub about: String,
}

impl Portion {
    /// Kind and detail as one word.
    pub fn name(&self) -> String {
        if self.what.is_empty() {
            self.kind.clone()
        } else {
            format!("{}/{}", self.kind, self.what)
        }
    }

    /// Whether it is longer than allowed, or cannot be judged: the kernel's table had no room for
    /// its kind.
    pub fn is_too_long(&self) -> bool {
        self.longest > LIMIT || self.kind == "overflow"
    }
}

/// Makes a boot measure its portions, on one hart with counted instructions.
pub fn measure(boot: &mut Boot) {
    boot.harts = 1;
    boot.count_instructions = Some(Idle::Skipped);
    boot.boot_arguments.push("portions=on".into());
}

/// Parses the kernel's output. Returns the longest first, with all harts combined.
pub fn parse(kernel: &str) -> Vec<Portion> {
    let mut found: BTreeMap<(String, String), Portion> = BTreeMap::new();
    for line in kernel.lines() {
        // The line may follow a message without a newline.
        let Some(portion) = line.find("portion: ").and_then(|start| parse_line(&line[start..]))
        else {
            continue;
        };
        found
            .entry((portion.kind.clone(), portion.what.clone()))
            .and_modify(|other| {
                other.count += portion.count;
                if portion.longest > other.longest {
                    other.longest = portion.longest;
                    other.about.clone_from(&portion.about);
                }
            })
            .or_insert(portion);
    }
    let mut portions: Vec<Portion> = found.into_values().collect();
    portions.sort_by_key(|portion| std::cmp::Reverse(portion.longest));
    portions
}

fn parse_line(line: &str) -> Option<Portion> {
    let words: BTreeMap<&str, &str> = line
        .strip_prefix("portion: ")?
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect();
    Some(Portion {
        kind: (*words.get("kind")?).to_owned(),
        what: (*words.get("what")?).to_owned(),
        longest: words.get("longest")?.parse().ok()?,
        count: words.get("count")?.parse().ok()?,
        about: (*words.get("about")?).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harts_are_taken_together_and_the_longest_comes_first() {
        let text = "[0.1] hello\n\
            portion: kind=fault what= hart=0 longest=70 count=2 about=0x1,0x0,0x0,0x0\n\
            portion: kind=system-call what=READ hart=0 longest=60000 count=3 about=0x0,0x1,0x2,0x3\n\
            noise portion: kind=fault what= hart=1 longest=90 count=5 about=0x2,0x0,0x0,0x0\n\
            portion: kind=broken\n";
        let portions = parse(text);
        assert_eq!(
            portions.iter().map(Portion::name).collect::<Vec<_>>(),
            ["system-call/READ", "fault"]
        );
        assert_eq!((portions[1].longest, portions[1].count), (90, 7));
        assert_eq!(portions[1].about, "0x2,0x0,0x0,0x0");
        assert!(portions[0].is_too_long() && !portions[1].is_too_long());
        assert!(!Portion { longest: LIMIT, ..portions[1].clone() }.is_too_long());
        assert!(Portion { kind: "overflow".into(), ..portions[1].clone() }.is_too_long());
    }
}
