//! The kernel's command line: space-separated `key=value` words from the device tree.

use core::fmt;
use core::num::IntErrorKind;

/// What the console carries and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ConsoleMode {
    /// One plain text stream, to be read by a person.
    #[default]
    Plain,
    /// Several channels, separated by escape sequences, for a tool that demultiplexes them.
    Mux,
}

/// The value of the last word `key=value` with this key, if there is one.
#[must_use]
pub fn value<'a>(arguments: &'a str, key: &str) -> Option<&'a str> {
    arguments
        .split_ascii_whitespace()
        .rev()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// A word that is not what its key needs, and what is used instead. Its text is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongNumber<'a> {
    key: &'a str,
    value: &'a str,
    least: usize,
    most: usize,
    otherwise: usize,
    /// The nearest number that is allowed, if it is a number.
    pub nearest: Option<usize>,
}

impl fmt::Display for WrongNumber<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, least, most, .. } = self;
        let used = self.nearest.unwrap_or(self.otherwise);
        write!(
            formatter,
            "boot argument {key}={value:?} is not a number from {least} to {most}: using {used}"
        )
    }
}

/// The number that the last word `key=number` gives, if there is one.
///
/// # Errors
/// [`WrongNumber`] if it is not a number from `least` to `most`. Then the nearest of these is to be
/// used, and `otherwise`, as without the word, if it is no number.
pub fn number<'a>(
    arguments: &'a str,
    key: &'a str,
    (least, most): (usize, usize),
    otherwise: usize,
) -> Result<Option<usize>, WrongNumber<'a>> {
    let Some(value) = value(arguments, key) else { return Ok(None) };
    let wrong = |nearest| Err(WrongNumber { key, value, least, most, otherwise, nearest });
    match value.parse::<usize>() {
        Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
        Ok(number) => wrong(Some(number.clamp(least, most))),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => wrong(Some(most)),
        Err(_) => wrong(None),
    }
}

/// The console mode that the boot arguments ask for. Anything but `console=mux` is plain.
#[must_use]
pub fn console_mode(arguments: &str) -> ConsoleMode {
    if value(arguments, "console") == Some("mux") { ConsoleMode::Mux } else { ConsoleMode::Plain }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn a_wrong_number_is_named_with_what_is_used_instead() {
        fn read(arguments: &str) -> Result<Option<usize>, WrongNumber<'_>> {
            number(arguments, "tcp-buffer", (1024, 65_536), 4096)
        }
        assert_eq!(read("a=1"), Ok(None));
        assert_eq!(read("tcp-buffer=2048"), Ok(Some(2048)));
        for (word, used) in [
            ("2k", 4096),
            ("", 4096),
            ("-1", 4096),
            ("1.5", 4096),
            ("0", 1024),
            ("1023", 1024),
            ("65537", 65_536),
            ("99999999999999999999999", 65_536),
        ] {
            let arguments = std::format!("x=y tcp-buffer={word}");
            let wrong = read(&arguments).unwrap_err();
            assert_eq!(wrong.nearest.unwrap_or(4096), used, "{word}");
            assert_eq!(
                wrong.to_string(),
                std::format!(
                    "boot argument tcp-buffer={word:?} is not a number from 1024 to 65536: using {used}"
                )
            );
        }
    }

    #[test]
    fn last_word_wins_and_prefixes_do_not_count() {
        assert_eq!(value("ip=dhcp ipx=1 ip=10.0.0.1/8", "ip"), Some("10.0.0.1/8"));
        assert_eq!(value("ipx=1", "ip"), None);
        assert_eq!(value("", "ip"), None);
        assert_eq!(value("ip=", "ip"), Some(""));
        assert_eq!(console_mode("a=b console=mux"), ConsoleMode::Mux);
        assert_eq!(console_mode("console=muxed"), ConsoleMode::Plain);
    }
}
