//! The first line of a script, which names the program that interprets it.
//!
//! The rules are Linux's, down to what becomes of a line that is longer than what the kernel reads:
//! the name of the interpreter must be complete, its argument is cut.

/// Number of bytes at the beginning of a file that are examined. A shorter file is padded with
/// zeros.
pub const HEAD_BYTES: usize = 256;

/// Number of scripts that may interpret each other before the program that interprets the last one.
pub const DEPTH_MAX: usize = 5;

/// What the first line of a script names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    /// The path of the program.
    pub path: &'a [u8],
    /// Its first argument, which is the rest of the line, spaces included.
    pub argument: Option<&'a [u8]>,
}

/// Whether a file with this beginning is a script.
#[must_use]
pub fn is_script(head: &[u8; HEAD_BYTES]) -> bool {
    head.starts_with(b"#!")
}

/// The interpreter of a script; `None` if its first line names none.
#[must_use]
pub fn interpreter(head: &[u8; HEAD_BYTES]) -> Option<Interpreter<'_>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let is_end = |byte: &u8| is_space(byte) || *byte == 0;
    let line = match head.iter().position(|&byte| byte == b'\n') {
        Some(end) => head.get(2..end)?,
        None => {
            // The last byte that is read is never used.
            let line = head.get(2..HEAD_BYTES - 1)?;
            let start = line.iter().position(|byte| !is_space(byte))?;
            line.get(start..)?.iter().position(is_end)?;
            line
        }
    };
    let start = line.iter().position(|byte| !is_space(byte))?;
    let length = line.iter().rposition(|byte| !is_space(byte))? + 1;
    let line = line.get(start..length)?;
    let (path, rest) = line.split_at(line.iter().position(is_end).unwrap_or(line.len()));
    let until_zero = |text: &'_ [u8]| text.iter().position(|&byte| byte == 0);
    let argument = match rest.first() {
        None | Some(0) => None,
        Some(_) => {
            let start = rest.iter().position(|byte| !is_space(byte)).unwrap_or(rest.len());
            let argument = &rest[start..];
            Some(&argument[..until_zero(argument).unwrap_or(argument.len())])
        }
    };
    Some(Interpreter { path, argument })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn head(text: &[u8]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let count = text.len().min(HEAD_BYTES);
        head[..count].copy_from_slice(&text[..count]);
        head
    }

    #[track_caller]
    fn expect(text: &[u8], expected: Option<(&str, Option<&str>)>) {
        let head = head(text);
        assert!(is_script(&head));
        let expected = expected.map(|(path, argument)| Interpreter {
            path: path.as_bytes(),
            argument: argument.map(str::as_bytes),
        });
        assert_eq!(interpreter(&head), expected, "{}", std::string::String::from_utf8_lossy(text));
    }

    #[test]
    fn the_first_line_names_the_interpreter() {
        expect(b"#!/bin/sh\necho a\n", Some(("/bin/sh", None)));
        expect(b"#! \t/bin/sh \t\necho", Some(("/bin/sh", None)));
        expect(b"#!/bin/sh", Some(("/bin/sh", None)));
        expect(b"#!/usr/bin/env -S a  b \t\nx", Some(("/usr/bin/env", Some("-S a  b"))));
        expect(b"#!/bin/sh\t-e", Some(("/bin/sh", Some("-e"))));
        expect(b"#!a\0b c\n", Some(("a", None)));
        expect(b"#!a b\0c\n", Some(("a", Some("b"))));
    }

    #[test]
    fn a_line_without_a_name_is_no_script() {
        for text in [&b"#!\n/bin/sh"[..], b"#! \t \n", &[b"#!".as_slice(), &[b' '; 300]].concat()] {
            expect(text, None);
        }
    }

    #[test]
    fn a_long_name_is_refused_and_a_long_argument_is_cut() {
        let long = |before: &str| [before.as_bytes(), &[b'x'; 400]].concat();
        expect(&long("#!"), None);
        let argument = "x".repeat(HEAD_BYTES - 1 - "#!a ".len());
        expect(&long("#!a "), Some(("a", Some(&argument))));
        // The name ends at the last byte that counts.
        let fits = [b"#!".as_slice(), &[b'x'; HEAD_BYTES - 4], b" tail"].concat();
        expect(&fits, Some((&"x".repeat(HEAD_BYTES - 4), None)));
        let too_long = [b"#!".as_slice(), &[b'x'; HEAD_BYTES - 3], b" tail"].concat();
        expect(&too_long, None);
    }

    #[test]
    fn other_files_are_no_scripts() {
        for text in [&b""[..], b"#", b"\x7fELF", b" #!/bin/sh"] {
            assert!(!is_script(&head(text)));
        }
    }

    proptest! {
        /// Whatever the file has, the name and the argument are parts of the first line.
        #[test]
        fn nothing_is_made_up(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let head = head(&[b"#!".as_slice(), &text].concat());
            if let Some(found) = interpreter(&head) {
                let line: Vec<u8> =
                    head[2..].iter().copied().take_while(|&byte| byte != b'\n').collect();
                for part in [Some(found.path), found.argument].into_iter().flatten() {
                    prop_assert!(part.is_empty() || line.windows(part.len()).any(|w| w == part));
                    prop_assert!(!part.contains(&0));
                }
                prop_assert!(!found.path.contains(&b' '));
            }
        }
    }
}
