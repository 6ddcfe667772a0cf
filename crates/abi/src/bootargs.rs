//! The kernel's command line: space-separated `key=value` words from the device tree.

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

/// The console mode that the boot arguments ask for. Anything but `console=mux` is plain.
#[must_use]
pub fn console_mode(arguments: &str) -> ConsoleMode {
    if value(arguments, "console") == Some("mux") { ConsoleMode::Mux } else { ConsoleMode::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;

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
