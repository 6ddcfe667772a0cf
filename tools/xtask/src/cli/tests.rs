//! Tests of the command line.

use super::*;

/// Parses a command line without the program's name.
fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
    Cli::parse_words([&["cops"], words].concat())
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_programs_own_options_are_left_alone() {
    let cli = parse(&["exec", "--smp", "2", "/bin/hello", "--smp", "-x"]).unwrap();
    let Command::Exec(exec) = cli.command else { panic!("not exec") };
    assert_eq!((exec.machine.smp, exec.argv.join(" ")), (2, "/bin/hello --smp -x".to_owned()));
}

#[test]
fn a_servers_ports_may_follow_it() {
    let words = [
        "serve",
        "/bin/echo-server",
        "--port",
        "7000:7,7001:7",
        "--port",
        "80:8080",
        "a",
        "--",
        "--vcpus",
    ];
    let Command::Serve(serve) = parse(&words).unwrap().command else { panic!("not serve") };
    assert_eq!(
        (serve.program.as_str(), serve.arguments.join(" ")),
        ("/bin/echo-server", "a --vcpus".to_owned())
    );
    assert_eq!(serve.ports.iter().map(|port| port.host).collect::<Vec<_>>(), [7000, 7001, 80]);
}

#[test]
fn defaults_are_the_specifications() {
    let Command::Run(run) = parse(&["run"]).unwrap().command else { panic!("not run") };
    assert_eq!((run.connections, run.matrix, run.period_ms, run.seconds), (64, 15, 100, 5));
    assert_eq!((run.machine.smp, run.machine.mem.as_str(), run.model.name()), (4, "512M", "kcuc"));
}

#[test]
fn all_clients_have_the_same_limit_of_connections_which_the_message_names() {
    let text = include_str!("../../../loadgen/src/arguments.rs");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("pub const CONNECTIONS_MAX"));
    let digits = lines.next().unwrap().rsplit(' ').next().unwrap();
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(digits.parse(), Ok(CONNECTIONS_MAX));
    for words in [&["run"][..], &["bench", "closed"]] {
        let with = |count: u32| parse(&[words, &["--connections", &count.to_string()]].concat());
        assert!(with(CONNECTIONS_MAX).is_ok());
        assert!(with(CONNECTIONS_MAX + 1).unwrap_err().to_string().contains("1..=60000"));
    }
}

#[test]
fn garbage_is_refused_with_the_value_in_the_message() {
    let wrong: [&[&str]; 22] = [
        &["run", "--smp", "9"],
        &["run", "--smp", "0"],
        &["run", "--matrix", "129"],
        &["run", "--connections", "-1"],
        &["run", "--mem", "huge"],
        &["run", "--model", "fast"],
        &["exec", "--timeout", "NaN", "/bin/hello"],
        &["exec", "--seed", "-1", "--icount", "/bin/hello"],
        &["exec", "--seed", "x", "--icount", "/bin/hello"],
        &["check", "--message-format", "xml"],
        &["report", "figures", "--write"],
        &["bench", "executor", "--counts"],
        &["serve", "--port", "http", "/bin/echo-server"],
        &["serve", "--ip", "10.0.0.1", "/bin/echo-server"],
        &["fuzz", "--calls", "0"],
        &["fuzz", "--calls-per-boot", "0"],
        &["fuzz", "--seed", "-1"],
        &["fuzz", "--smp", "9"],
        &["test", "--stress-seconds", "x"],
        &["test", "--stress-seconds", "0"],
        &["top", "--pid", "first"],
        &["top", "--interval", "0"],
    ];
    for words in wrong {
        let error = parse(words).unwrap_err().to_string();
        assert!(error.contains(words[2]), "{words:?}: {error}");
    }
    for words in [
        &["exec"][..],
        &["exec", "--seed", "2", "/p"],
        &["trace"],
        &["trace", "--run", "/bin/hello"],
        &["trace", "--records", "1", "/p"],
    ] {
        assert!(parse(words).is_err(), "{words:?}");
    }
    for contradiction in [
        &["top", "--json", "--once"][..],
        &["test", "--mutations", "--quick"],
        &["test", "a", "--filter", "b"],
    ] {
        let error = parse(contradiction).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{contradiction:?}");
    }
}

/// The command lines of this tool in a line of an example, as words. What a shell does with quotes
/// and operators is as far as the examples need it.
fn command_lines(example: &str) -> Vec<Vec<String>> {
    let words = |rest: &str| {
        let mut words = Vec::new();
        for (index, part) in rest.split('\'').enumerate() {
            if index % 2 == 1 {
                words.push(part.to_owned());
                continue;
            }
            for word in part.split_whitespace() {
                if ["|", "&&", "&", ">"].contains(&word) {
                    return words;
                }
                words.push(word.trim_end_matches(';').to_owned());
                if word.ends_with(';') {
                    return words;
                }
            }
        }
        words
    };
    example.split("./cops ").skip(1).map(words).collect()
}

#[test]
fn a_shells_operators_end_a_command_line_of_an_example() {
    let lines = command_lines("x | ./cops a 'b c' d; git e; ./cops f g > h; ./cops i &");
    assert_eq!(lines, [&["a", "b c", "d"][..], &["f", "g"], &["i"]]);
}

#[test]
fn every_example_of_a_help_text_is_accepted() {
    let mut examples = 0;
    for command in Cli::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let Some((_, lines)) = help.split_once("Examples:\n") else { continue };
        for words in lines.lines().flat_map(command_lines) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let Err(error) = parse(&words) {
                panic!("./cops {}\n{error}", words.join(" "));
            }
            examples += 1;
        }
    }
    assert!(examples > 50, "{examples}");
}
