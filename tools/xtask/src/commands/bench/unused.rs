//! The options that a measurement does not use. It refuses them: a figure would otherwise be taken
//! for one that was measured as asked. `--quick` is never refused: it promises no other figure, and
//! every measurement has a short form, even if that is its only one.

use clap::ValueEnum;

use crate::cli::{Bench, Measurement};
use crate::error::{Failure, Outcome};

/// Fails if `options` has one that its measurement would ignore.
pub fn refuse(options: &Bench) -> Outcome<()> {
    let Some(unused) = first_unused(options) else { return Ok(()) };
    let counted = if options.icount { " --icount" } else { "" };
    let value = options.name.to_possible_value();
    let name = value.as_ref().map_or("", |value| value.get_name());
    Err(Failure::new(format!("{unused} has no effect on ./cops bench {name}{counted}"))
        .advise("./cops bench --help says which measurements use it"))
}

/// An option that was given and has no effect.
fn first_unused(options: &Bench) -> Option<&'static str> {
    use Measurement::{
        Closed, Costs, Executor, Hostile, IdleMemory, Memory, Models, Overload, Peers, Pipe,
        Portions, Priority, Ring, Scale, Switch, Wakeups,
    };
    let name = options.name;
    let is_given = |option: &str| options.given.contains(&option);
    // The paper's machine, one hart that counts instructions, or a machine for each row.
    let has_harts = matches!(name, Costs | Hostile | Pipe | Portions | Ring | Switch | Wakeups)
        || options.papers_machine.is_some()
        || options.icount && name != Closed;
    // The same, and as much memory as the papers have.
    let has_memory = matches!(name, Memory | Pipe | Ring);
    // How much is counted is fixed, so that the counts of two runs can be compared.
    let is_timed = !options.icount;
    let takes_one_count = matches!(name, Closed | IdleMemory);
    let takes_counts = matches!(name, Models | Overload | Peers);
    let may_count = matches!(
        name,
        Closed
            | Costs
            | Executor
            | Hostile
            | Models
            | Overload
            | Pipe
            | Portions
            | Priority
            | Ring
            | Scale
            | Switch
            | Wakeups
    );
    let lasts = matches!(name, Models | Overload | Priority) && is_timed || name == Peers;
    let repeats = matches!(name, Models | Overload | Priority) && is_timed
        || matches!(name, Peers | Pipe | Ring);
    let may_have_tap = matches!(name, Closed | IdleMemory | Overload | Scale)
        || matches!(name, Models | Priority) && is_timed;
    // The option, whether it was given, and whether it has an effect.
    let known = [
        ("--icount", options.icount, may_count),
        ("--connections", !options.connections.is_empty(), takes_one_count || takes_counts),
        ("a second number of --connections", options.connections.len() > 1, takes_counts),
        ("--tap", options.tap, may_have_tap),
        ("--model", !options.model.is_empty(), matches!(name, Closed | Models | Peers)),
        ("--peer", !options.peer.is_empty(), name == Peers),
        ("--resume", options.resume, name == Peers),
        ("--loop", !options.loops.is_empty(), name == Models && is_timed || name == Peers),
        ("--seconds", options.seconds.is_some(), lasts),
        ("--matrix", !options.matrix.is_empty(), takes_counts),
        ("--rounds", options.rounds.is_some(), repeats),
        ("--papers-machine", options.papers_machine.is_some(), name == Models),
        ("--host-awake", options.host_awake, name == Models && is_timed),
        ("--slow-harts", options.slow_harts, name == Priority && is_timed),
        ("--scheduler", options.scheduler.is_some(), name != Executor),
        ("--smp", is_given("smp"), !has_harts && name != Executor),
        ("--mem", is_given("mem"), !has_memory && name != Executor),
        ("--idle", is_given("idle"), name != Executor),
    ];
    known.into_iter().find(|(_, is_given, is_used)| *is_given && !is_used).map(|(name, ..)| name)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::figures::sources::{Make, SOURCES};

    fn unused(words: &[&str]) -> Option<&'static str> {
        let cli = Cli::parse_words([&["cops"], words].concat()).unwrap();
        let Command::Bench(options) = cli.command else { panic!("{words:?} is not bench") };
        first_unused(&options)
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (words, option) in [
            ("disk --icount", "--icount"),
            ("idle-memory --tap --icount", "--icount"),
            ("memory --connections 5", "--connections"),
            ("closed --connections 64,256", "a second number of --connections"),
            ("ring --tap", "--tap"),
            ("models --icount --tap", "--tap"),
            ("overload --model ktut", "--model"),
            ("models --peer epoll", "--peer"),
            ("models --resume --json f", "--resume"),
            ("models --icount --loop open", "--loop"),
            ("overload --icount --seconds 2", "--seconds"),
            ("priority --matrix 15", "--matrix"),
            ("models --icount --rounds 2", "--rounds"),
            ("priority --icount --rounds 2", "--rounds"),
            ("peers --papers-machine", "--papers-machine"),
            ("models --icount --host-awake", "--host-awake"),
            ("closed --host-awake", "--host-awake"),
            ("priority --icount --slow-harts", "--slow-harts"),
            ("models --slow-harts", "--slow-harts"),
            ("executor --scheduler f", "--scheduler"),
            // Also if it is what is used where nothing is given.
            ("ring --smp 4", "--smp"),
            ("costs --smp 1", "--smp"),
            ("hostile --smp 2", "--smp"),
            ("wakeups --smp 1", "--smp"),
            ("scale --icount --smp 1", "--smp"),
            ("models --papers-machine --smp 2", "--smp"),
            ("pipe --mem 512M", "--mem"),
            ("memory --mem 64M", "--mem"),
            ("executor --mem 1G", "--mem"),
            ("executor --idle poll", "--idle"),
        ] {
            let words: Vec<_> = ["bench"].into_iter().chain(words.split(' ')).collect();
            assert_eq!(unused(&words), Some(option), "{words:?}");
        }
    }

    #[test]
    fn each_measurement_may_be_quick_and_may_be_counted_if_it_always_is() {
        for value in Measurement::value_variants() {
            let value = value.to_possible_value().unwrap();
            assert_eq!(unused(&["bench", value.get_name(), "--quick"]), None, "{value:?}");
        }
        for name in ["costs", "portions", "switch"] {
            assert_eq!(unused(&["bench", name, "--icount"]), None, "{name}");
        }
    }

    #[test]
    fn the_data_and_the_examples_of_the_help_are_measured_as_their_commands_say() {
        let mut commands = 0;
        let mut check = |words: &[&str]| {
            assert_eq!(unused(words), None, "{words:?}");
            commands += 1;
        };
        for source in &SOURCES {
            if let Make::Cops(words) = source.make
                && words[0] == "bench"
            {
                check(words);
            }
        }
        let cli = Cli::command();
        let bench = cli.find_subcommand("bench").unwrap();
        let help = bench.get_after_help().unwrap().to_string();
        for example in help.lines().filter_map(|line| line.trim().strip_prefix("./cops ")) {
            check(&example.split_whitespace().collect::<Vec<_>>());
        }
        assert!(commands > 40, "{commands}");
    }
}
