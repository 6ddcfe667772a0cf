//! The plugin's arguments.

use std::path::PathBuf;

/// What the plugin is to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The file for the record.
    pub out: PathBuf,
    /// The address of the kernel's trap vector.
    pub vector: u64,
    /// The address of a function: the record has the counts at each time it was called.
    pub mark: u64,
}

impl Options {
    /// Parses arguments of the form `NAME=VALUE`, with addresses in hexadecimal digits.
    pub fn parse(arguments: &[String]) -> Option<Self> {
        let value = |name: &str| {
            arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
        };
        let address = |name| u64::from_str_radix(value(name)?, 16).ok();
        Some(Self { out: value("out")?.into(), vector: address("vector")?, mark: address("mark")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse =
            |text: &str| Options::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let options = Options { out: "/a=b".into(), vector: 0x10, mark: 0xffff_ffff_ffff_ff00 };
        assert_eq!(parse("out=/a=b vector=10 mark=ffffffffffffff00"), Some(options));
        for wrong in ["", "out=/a vector=10", "out=/a vector=x mark=1", "outer=/a vector=1 mark=1"]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
