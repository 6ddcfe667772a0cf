//! The stages of a request to the matrix server, and the budget of each.
//!
//! A call path belongs to the first stage of the list that has a word of one of its frames. So what
//! a stage calls is in it, unless an earlier stage in the list has that too.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::kinds::atomics_and_fences;
use super::paths::Profile;

/// A part of the way of a request.
pub struct Stage {
    /// Its name in tables.
    pub name: &'static str,
    /// What is in it.
    pub what: &'static str,
    /// Words in the names of its functions.
    words: &'static [&'static str],
    /// The instructions per request that a test allows: more than were measured when this was
    /// written, since the number of interrupts per request depends on the client's host. Raise a
    /// number only for something that is worth it.
    pub allowed: u32,
    /// The instructions per request that the stage may have one day.
    pub goal: u32,
}

/// The atomic instructions and fences per request that a test allows, of all stages together.
const ORDERING_ALLOWED: u32 = 200;

/// All stages, in the order in which a path is compared with them.
pub const STAGES: [Stage; 12] = [
    Stage {
        name: "virtio",
        what: "the network card's queues, both ways",
        words: &["virtio_drivers::", "cops_kernel::drivers::virtio"],
        allowed: 80,
        goal: 250,
    },
    Stage {
        name: "interrupt",
        what: "from the trap to the wake of the receiver",
        words: &["handle_interrupt", "::interrupt::", "kernel:(trap)"],
        allowed: 300,
        goal: 100,
    },
    Stage {
        name: "send",
        what: "the answer from the socket's buffer to the card",
        words: &["Stack::kick", "LinkCore>::egress"],
        allowed: 1050,
        goal: 1100,
    },
    Stage {
        name: "wake",
        what: "of calls on connections that have received something",
        words: &["cops_wake", "WaitQueue::wake", "raw_waker::wake"],
        allowed: 450,
        goal: 150,
    },
    Stage {
        name: "TCP",
        what: "smoltcp, for what is not on the fast path",
        words: &["smoltcp::"],
        allowed: 250,
        goal: 700,
    },
    Stage {
        name: "ring",
        what: "results in the process's ring",
        words: &["wake_ring", "process::notify", "Process>::complete", "call::ring::"],
        allowed: 300,
        goal: 150,
    },
    Stage {
        name: "completion",
        what: "of the standing read, by the receiver or in its coroutine",
        words: &["call::cell::poll", "call::cell::attempt", "call::together", "attempt_calls"],
        allowed: 750,
        goal: 350,
    },
    Stage {
        name: "call",
        what: "a standing read and a write, without the network",
        words: &["syscall::", "cops_kernel::call::"],
        allowed: 500,
        goal: 900,
    },
    Stage {
        name: "receive",
        what: "frames, checksums, the connection of a segment",
        words: &["cops_net::"],
        allowed: 1100,
        goal: 350,
    },
    // Where the border between these is depends on what is inlined.
    Stage {
        name: "program",
        what: "the matrix server, its channels and heap, and the library's calls",
        words: &["matrix_server::", "matrix_message::", "sync::spsc", "talc::", ":cops::"],
        allowed: 2600,
        goal: 2000,
    },
    Stage {
        name: "crossing",
        what: "into user mode and back",
        words: &["__enter_user", "__leave_user", "__trap_vector", "user_mode::"],
        allowed: 200,
        goal: 150,
    },
    Stage {
        name: "scheduling",
        what: "both executors, and which virtual CPU runs",
        words: &["switching", "run_queue", "cops_executor", "cops_run", "sched::"],
        allowed: 1000,
        goal: 1200,
    },
];

/// The number of the stage that a path belongs to.
fn of(path: &[String]) -> Option<usize> {
    let has = |word: &&str| path.iter().any(|frame| frame.contains(*word));
    STAGES.iter().position(|stage| stage.words.iter().any(has))
}

/// The name of the stage that a path belongs to.
pub fn name(path: &[String]) -> &'static str {
    of(path).map_or("others", |stage| STAGES[stage].name)
}

/// The instructions of each stage, and of those paths that are in none.
fn totals(profile: &Profile) -> ([i64; STAGES.len()], i64) {
    let (mut totals, mut others) = ([0; STAGES.len()], 0);
    for (path, instructions) in &profile.paths {
        match of(path) {
            Some(stage) => totals[stage] += instructions,
            None => others += instructions,
        }
    }
    (totals, others)
}

/// Instructions per request of each stage, and of what is in none.
fn per_request(profile: &Profile) -> ([f64; STAGES.len()], f64) {
    let (totals, others) = totals(profile);
    let unit = profile.unit();
    (totals.map(|instructions| instructions as f64 / unit), others as f64 / unit)
}

/// Atomic instructions and fences per request of each stage.
fn ordering_per_request(profile: &Profile) -> [f64; STAGES.len()] {
    let mut totals = [0; STAGES.len()];
    for (path, kinds) in &profile.kinds {
        if let Some(stage) = of(path) {
            totals[stage] += atomics_and_fences(kinds);
        }
    }
    totals.map(|instructions| instructions as f64 / profile.unit())
}

/// The table of a profile of requests: the most expensive stage first.
pub fn table(profile: &Profile) -> String {
    let (measured, others) = per_request(profile);
    let mut rows: Vec<_> = STAGES.iter().zip(measured).collect();
    rows.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut text = format!("{:>14} {:>9} {:>9}  by stage\n", "per request", "allowed", "goal");
    for (stage, measured) in rows {
        let Stage { name, what, allowed, goal, .. } = stage;
        let _ = writeln!(text, "{measured:>14.1} {allowed:>9} {goal:>9}  {name}: {what}");
    }
    let _ = writeln!(text, "{others:>14.1} {:>9} {:>9}  others\n", "", "");
    text
}

/// The same as rows of data.
pub fn rows(profile: &Profile) -> Vec<Value> {
    let (measured, _) = per_request(profile);
    let ordering = ordering_per_request(profile);
    let rounded = |number: f64| (number * 10.0).round() / 10.0;
    let stages = STAGES.iter().zip(measured).zip(ordering).map(|((stage, measured), ordering)| {
        json!({
            "stage": stage.name,
            "instructions": rounded(measured),
            "atomics_and_fences": rounded(ordering),
            "allowed": stage.allowed,
            "goal": stage.goal,
        })
    });
    stages.collect()
}

/// What is above the budget.
pub fn too_expensive(profile: &Profile) -> Vec<String> {
    let (measured, others) = per_request(profile);
    let stages = STAGES.iter().zip(measured);
    let mut wrong: Vec<String> = stages
        .filter(|(stage, measured)| *measured > f64::from(stage.allowed))
        .map(|(stage, measured)| {
            format!("{}: {measured:.1} instructions per request of {}", stage.name, stage.allowed)
        })
        .collect();
    let ordering: f64 = ordering_per_request(profile).iter().sum();
    if ordering > f64::from(ORDERING_ALLOWED) {
        wrong.push(format!(
            "{ordering:.1} atomic instructions and fences per request of {ORDERING_ALLOWED}"
        ));
    }
    if others > 100.0 {
        wrong.push(format!("{others:.1} instructions per request are in no stage"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::record::Block;

    const PATHS: &str = "\
# requests 10
kernel:run;kernel:cops_net::Stack::kick;kernel:smoltcp::x 200
kernel:run;kernel:smoltcp::x 100
kernel:run;kernel:cops_net::Stack::kick;kernel:virtio_drivers::add 50
matrix-server:matrix_server::x;matrix-server:cops::heap::alloc 70
kernel:somewhere 30
";

    #[test]
    fn a_path_is_in_the_first_stage_that_knows_it() {
        let profile = Profile::parse(PATHS).unwrap();
        let (totals, others) = totals(&profile);
        let of = |name: &str| {
            let at = STAGES.iter().position(|stage| stage.name == name);
            at.map_or(0, |at| totals[at])
        };
        assert_eq!(["send", "TCP", "virtio", "program"].map(of), [200, 100, 50, 70]);
        assert_eq!(others, 30);
        assert!(table(&profile).contains("20.0      1050      1100  send: "));
        let sends = &rows(&profile)[2];
        assert_eq!((&sends["stage"], &sends["instructions"]), (&json!("send"), &json!(20.0)));
    }

    #[test]
    fn a_stage_above_its_budget_is_wrong() {
        let profile = |instructions: u32| {
            Profile::parse(&format!("# requests 10\nkernel:smoltcp::x {instructions}\n")).unwrap()
        };
        let allowed = 10 * STAGES[4].allowed;
        assert_eq!(too_expensive(&profile(allowed)), Vec::<String>::new());
        assert_eq!(too_expensive(&profile(allowed + 1)).len(), 1);
        let others = Profile::parse("# requests 1\nkernel:somewhere 101\n").unwrap();
        assert_eq!(too_expensive(&others).len(), 1);
        // amoadd.w zero, a1, (a0), so often in the requests.
        let atomics = |times: i64| {
            let bytes = vec![0x2f, 0x20, 0xb5, 0x00];
            let one = crate::profile::kinds::of(&Block { address: 0, memory: 0, bytes }, 1);
            let mut profile = Profile { requests: Some(10), ..Profile::default() };
            profile.kinds.insert(vec!["kernel:smoltcp::x".into()], one.map(|one| one * times));
            profile
        };
        let allowed = 10 * i64::from(ORDERING_ALLOWED);
        assert_eq!(too_expensive(&atomics(allowed)), Vec::<String>::new());
        assert_eq!(too_expensive(&atomics(allowed + 1)).len(), 1);
        assert_eq!(rows(&atomics(55))[4]["atomics_and_fences"], json!(5.5));
    }
}
