//! What a line means: lists of pipelines of commands, with words that are expanded later.
//!
//! ```text
//! line     = chain { (";" | "&") chain } [";" | "&"]
//! chain    = pipeline { ("&&" | "||") pipeline }
//! pipeline = command { "|" command }
//! command  = { word | redirection }            at least one of them
//! redirection = ["<" | [digit] ">" | [digit] ">>"] word | [digit] ">&" digit
//! ```
//!
//! A word consists of letters, `'..'`, `".."`, `\x`, `$NAME`, `${NAME}` and `$?`. `#` at the begin
//! of a word starts a comment. As in other shells, except that there are no patterns of file names
//! and no nested commands.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A part of a line that runs in the foreground or in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Pipelines, each with the condition under which it runs.
    pub pipelines: Vec<(Condition, Pipeline)>,
    /// Whether it ends with `&`.
    pub is_background: bool,
}

/// When a pipeline runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// After `&&`: if the status is 0.
    Success,
    /// After `||`: if it is not.
    Failure,
}

/// Commands of which each reads what the one before it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// At least one.
    pub commands: Vec<Command>,
    /// As it was typed.
    pub text: String,
}

/// A command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its name and its arguments.
    pub words: Vec<Word>,
    /// In the order in which they take effect.
    pub redirections: Vec<Redirection>,
}

/// Another file for one of the standard streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The stream: 0, 1 or 2.
    pub stream: usize,
    /// What it becomes.
    pub target: Target,
}

/// What a stream becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This file, for reading.
    Read(Word),
    /// This file, which is created or made empty.
    Write(Word),
    /// The end of this file, which is created if there is none.
    Append(Word),
    /// What this stream is at that point.
    Stream(usize),
}

/// A word before its expansion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Stands for itself.
    Text(String),
    /// The value of a variable; its spaces separate words unless it `is_quoted`.
    Variable { name: String, is_quoted: bool },
}

/// Why a line has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A quote or a brace is not closed.
    Unclosed(char),
    /// Something is missing before or after this.
    Near(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unclosed(quote) => write!(formatter, "no closing {quote}"),
            Fault::Near(token) => write!(formatter, "syntax error near {token}"),
        }
    }
}

enum Token {
    Word(Word),
    /// `|`, `||`, `&`, `&&`, `;`.
    Operator(&'static str),
    /// Its target, a word, is the next token.
    Redirect(usize, fn(Word) -> Target),
    /// It is complete.
    Same(usize, usize),
}

/// A token, and where it is in the line.
struct Place {
    token: Token,
    start: usize,
    end: usize,
}

/// Finds out what a line means.
///
/// # Errors
/// [`Fault`].
pub fn parse(line: &str) -> Result<Vec<Chain>, Fault> {
    let tokens = tokens(line)?;
    let (mut chains, mut pipelines, mut commands) = (Vec::new(), Vec::new(), Vec::new());
    let (mut command, mut condition) = (Command::default(), Condition::Always);
    let mut begin = 0;
    let mut rest = tokens.iter();
    while let Some(place) = rest.next() {
        let is_empty = command.words.is_empty() && command.redirections.is_empty();
        if is_empty && commands.is_empty() {
            begin = place.start;
        }
        match &place.token {
            Token::Word(word) => command.words.push(word.clone()),
            &Token::Same(stream, other) => {
                command.redirections.push(Redirection { stream, target: Target::Stream(other) });
            }
            &Token::Redirect(stream, target) => {
                let near = || Fault::Near(line[place.start..place.end].into());
                match rest.next().map(|next| &next.token) {
                    Some(Token::Word(word)) => {
                        let target = target(word.clone());
                        command.redirections.push(Redirection { stream, target });
                    }
                    _ => return Err(near()),
                }
            }
            &Token::Operator(operator) => {
                if is_empty {
                    return Err(Fault::Near(operator.into()));
                }
                commands.push(core::mem::take(&mut command));
                if operator == "|" {
                    continue;
                }
                let text = line[begin..place.start].trim_end().into();
                let pipeline = Pipeline { commands: core::mem::take(&mut commands), text };
                pipelines.push((condition, pipeline));
                condition = match operator {
                    "&&" => Condition::Success,
                    "||" => Condition::Failure,
                    _ => {
                        let pipelines = core::mem::take(&mut pipelines);
                        chains.push(Chain { pipelines, is_background: operator == "&" });
                        Condition::Always
                    }
                };
            }
        }
    }
    let is_empty = command.words.is_empty() && command.redirections.is_empty();
    if is_empty && (!commands.is_empty() || !pipelines.is_empty()) {
        return Err(Fault::Near("the end".into()));
    }
    if !is_empty {
        commands.push(command);
        let end = tokens.last().map_or(0, |place| place.end);
        pipelines.push((condition, Pipeline { commands, text: line[begin..end].into() }));
        chains.push(Chain { pipelines, is_background: false });
    }
    Ok(chains)
}

/// Operators and redirections, the longer ones first.
const OPERATORS: [&str; 5] = ["&&", "||", "|", "&", ";"];

fn tokens(line: &str) -> Result<Vec<Place>, Fault> {
    let (mut tokens, mut start) = (Vec::new(), 0);
    loop {
        let rest = &line[start..];
        start += rest.len() - rest.trim_start_matches(is_space).len();
        let rest = &line[start..];
        if rest.is_empty() || rest.starts_with('#') {
            return Ok(tokens);
        }
        let operator = OPERATORS.into_iter().find(|operator| rest.starts_with(operator));
        let (token, length) = match (operator, redirection(rest)) {
            (Some(operator), _) => (Token::Operator(operator), operator.len()),
            (None, Some(found)) => found,
            (None, None) => {
                let (word, length) = word(rest)?;
                if length == 0 {
                    // A redirection that is none, such as `>&x`.
                    return Err(Fault::Near(rest.chars().take(1).collect()));
                }
                (Token::Word(word), length)
            }
        };
        tokens.push(Place { token, start, end: start + length });
        start += length;
    }
}

/// Spaces, and control characters as those of keys that mean nothing.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control()
}

/// The redirection with which `text` begins, and its length.
fn redirection(text: &str) -> Option<(Token, usize)> {
    let digit = text.as_bytes().first()?.wrapping_sub(b'0');
    let (stream, rest) = if digit <= 2 { (Some(digit.into()), &text[1..]) } else { (None, text) };
    let mut found = if let Some(same) = rest.strip_prefix(">&") {
        let other = same.as_bytes().first()?.wrapping_sub(b'0');
        let other = usize::from(other);
        (other <= 2).then_some((Token::Same(stream.unwrap_or(1), other), 3))?
    } else if rest.starts_with(">>") {
        (Token::Redirect(stream.unwrap_or(1), Target::Append), 2)
    } else if rest.starts_with('>') {
        (Token::Redirect(stream.unwrap_or(1), Target::Write), 1)
    } else if rest.starts_with('<') {
        (Token::Redirect(stream.unwrap_or(0), Target::Read), 1)
    } else {
        return None;
    };
    found.1 += usize::from(stream.is_some());
    Some(found)
}

/// The word with which `text` begins, and its length.
fn word(text: &str) -> Result<(Word, usize), Fault> {
    let mut word = Word::default();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if is_space(letter) || "|&;<>".contains(letter) {
            break;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\'' => {
                let end = rest.find('\'').ok_or(Fault::Unclosed('\''))?;
                word.text(&rest[..end]);
                rest = &rest[end + 1..];
            }
            '"' => rest = word.quoted(rest)?,
            '\\' => rest = word.escaped(rest, |_| true),
            '$' => rest = word.variable(rest, false)?,
            _ => word.letter(letter),
        }
    }
    Ok((word, text.len() - rest.len()))
}

impl Word {
    /// Adds text, which may be empty: then the word exists, and is empty.
    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.0.push(Piece::Text(text.into())),
        }
    }

    fn letter(&mut self, letter: char) {
        self.text(letter.encode_utf8(&mut [0; 4]));
    }

    /// Adds what follows a `"`. Returns what follows the closing one.
    fn quoted<'t>(&mut self, text: &'t str) -> Result<&'t str, Fault> {
        self.text("");
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            match letter {
                '"' => return Ok(rest),
                '\\' => rest = self.escaped(rest, |letter| "\"\\$".contains(letter)),
                '$' => rest = self.variable(rest, true)?,
                _ => self.letter(letter),
            }
        }
        Err(Fault::Unclosed('"'))
    }

    /// Adds the letter after a `\`, and the `\` too if that is not `special`.
    fn escaped<'t>(&mut self, text: &'t str, special: impl Fn(char) -> bool) -> &'t str {
        let Some(letter) = text.chars().next() else {
            self.letter('\\');
            return text;
        };
        if !special(letter) {
            self.letter('\\');
        }
        self.letter(letter);
        &text[letter.len_utf8()..]
    }

    /// Adds the variable of which the name follows a `$`.
    fn variable<'t>(&mut self, text: &'t str, is_quoted: bool) -> Result<&'t str, Fault> {
        let (name, rest) = if let Some(braced) = text.strip_prefix('{') {
            let end = braced.find('}').ok_or(Fault::Unclosed('}'))?;
            (&braced[..end], &braced[end + 1..])
        } else if text.starts_with(['?', '$']) {
            text.split_at(1)
        } else {
            let end = text.find(|letter: char| !is_of_name(letter)).unwrap_or(text.len());
            text.split_at(end)
        };
        if name.is_empty() {
            self.letter('$');
        } else {
            self.0.push(Piece::Variable { name: name.into(), is_quoted });
        }
        Ok(rest)
    }

    /// The words that this one becomes with these values of variables: usually one, none if it
    /// consists of variables that are empty, several if such a value has spaces.
    pub fn expand(&self, value: &impl Fn(&str) -> Option<String>) -> Vec<String> {
        let (mut words, mut current) = (Vec::new(), None::<String>);
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => current.get_or_insert_default().push_str(text),
                Piece::Variable { name, is_quoted: true } => {
                    current.get_or_insert_default().push_str(&value(name).unwrap_or_default());
                }
                Piece::Variable { name, is_quoted: false } => {
                    let value = value(name).unwrap_or_default();
                    if value.starts_with(is_space) {
                        words.extend(current.take());
                    }
                    for (index, part) in value.split(is_space).filter(not_empty).enumerate() {
                        if index > 0 {
                            words.extend(current.take());
                        }
                        current.get_or_insert_default().push_str(part);
                    }
                    if value.ends_with(is_space) {
                        words.extend(current.take());
                    }
                }
            }
        }
        words.extend(current);
        words
    }

    /// What this word becomes where one word is needed.
    pub fn expand_to_one(&self, value: &impl Fn(&str) -> Option<String>) -> String {
        self.expand(value).join(" ")
    }

    /// The name and the value if this is `NAME=value`.
    #[must_use]
    pub fn assignment(&self) -> Option<(&str, Word)> {
        let Some(Piece::Text(text)) = self.0.first() else { return None };
        let (name, begin) = assignment(text)?;
        let mut pieces = alloc::vec![Piece::Text(begin.into())];
        pieces.extend_from_slice(&self.0[1..]);
        Some((name, Word(pieces)))
    }
}

fn not_empty(text: &&str) -> bool {
    !text.is_empty()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The two parts of `NAME=value`.
#[must_use]
pub fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let is_name = name.chars().all(is_of_name) && !name.is_empty();
    (is_name && !name.starts_with(|letter: char| letter.is_ascii_digit())).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn value(name: &str) -> Option<String> {
        let value = match name {
            "A" => "one",
            "TWO" => "one  two",
            "SPACES" => " x ",
            "?" => "7",
            _ => return None,
        };
        Some(value.into())
    }

    /// The words of a line with one command.
    fn words(line: &str) -> Vec<String> {
        let chains = parse(line).unwrap();
        let [chain] = chains.as_slice() else { panic!("{chains:?}") };
        let [(_, pipeline)] = chain.pipelines.as_slice() else { panic!("{chains:?}") };
        let [command] = pipeline.commands.as_slice() else { panic!("{chains:?}") };
        command.words.iter().flat_map(|word| word.expand(&value)).collect()
    }

    #[test]
    fn words_and_quotes() {
        for (line, expected) in [
            ("a b\tc", vec!["a", "b", "c"]),
            ("  a  ", vec!["a"]),
            ("a 'b c' \"d e\" f\\ g", vec!["a", "b c", "d e", "f g"]),
            ("'' \"\" a''b", vec!["", "", "ab"]),
            ("'a\"b' \"a'b\" \\' \\\"", vec!["a\"b", "a'b", "'", "\""]),
            ("\"a\\\"b\\\\c\\$d\\e\"", vec!["a\"b\\c$d\\e"]),
            ("'$A' \\$A $ a$", vec!["$A", "$A", "$", "a$"]),
            ("$A ${A}x \"$A x\" $?", vec!["one", "onex", "one x", "7"]),
            ("$TWO \"$TWO\" a$TWO.", vec!["one", "two", "one  two", "aone", "two."]),
            ("$NONE \"$NONE\" a$NONE", vec!["", "a"]),
            ("a${SPACES}b", vec!["a", "x", "b"]),
            ("a # b | c", vec!["a"]),
            ("a#b", vec!["a#b"]),
            ("äö 'ü'", vec!["äö", "ü"]),
            ("a\x1b\x07b", vec!["a", "b"]),
            ("a\\", vec!["a\\"]),
        ] {
            assert_eq!(words(line), expected, "{line:?}");
        }
    }

    #[test]
    fn lists() {
        let chains = parse("a b | c && d || e; f & g|h ;").unwrap();
        let shape: Vec<_> = chains
            .iter()
            .map(|chain| {
                let pipelines = chain.pipelines.iter().map(|(condition, pipeline)| {
                    (*condition, pipeline.commands.len(), pipeline.text.as_str())
                });
                (chain.is_background, pipelines.collect::<Vec<_>>())
            })
            .collect();
        use Condition::{Always, Failure, Success};
        assert_eq!(
            shape,
            [
                (false, vec![(Always, 2, "a b | c"), (Success, 1, "d"), (Failure, 1, "e")]),
                (true, vec![(Always, 1, "f")]),
                (false, vec![(Always, 2, "g|h")]),
            ]
        );
        assert_eq!(parse("  # nothing"), Ok(vec![]));
    }

    #[test]
    fn redirections() {
        let chains = parse("<in a 2>&1 >'o u t' b>>c 2>err >&2 12>d 0<e").unwrap();
        let command = &chains[0].pipelines[0].1.commands[0];
        let words: Vec<_> = command.words.iter().flat_map(|word| word.expand(&value)).collect();
        // A number of two digits is a word.
        assert_eq!(words, ["a", "b", "12"]);
        let name = |text: &str| Word(vec![Piece::Text(text.into())]);
        let expected = [
            (0, Target::Read(name("in"))),
            (2, Target::Stream(1)),
            (1, Target::Write(name("o u t"))),
            (1, Target::Append(name("c"))),
            (2, Target::Write(name("err"))),
            (1, Target::Stream(2)),
            (1, Target::Write(name("d"))),
            (0, Target::Read(name("e"))),
        ];
        let found = command.redirections.iter().map(|one| (one.stream, one.target.clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn assignments() {
        let chains = parse("A_1=x$A'y z' 1B=c =d").unwrap();
        let words = &chains[0].pipelines[0].1.commands[0].words;
        let (name, text) = words[0].assignment().unwrap();
        assert_eq!((name, text.expand_to_one(&value).as_str()), ("A_1", "xoney z"));
        assert!(words[1].assignment().is_none() && words[2].assignment().is_none());
        assert_eq!(assignment("P=a=b"), Some(("P", "a=b")));
    }

    #[test]
    fn faults() {
        for (line, fault) in [
            ("a 'b", "no closing '"),
            ("a \"b\\\"", "no closing \""),
            ("${A", "no closing }"),
            ("| a", "syntax error near |"),
            ("a | | b", "syntax error near |"),
            ("a |", "syntax error near the end"),
            ("a &&", "syntax error near the end"),
            ("a && ; b", "syntax error near ;"),
            (";", "syntax error near ;"),
            ("&", "syntax error near &"),
            ("a >", "syntax error near >"),
            ("a > | b", "syntax error near >"),
            ("a 2>>", "syntax error near 2>>"),
            ("a >&x", "syntax error near >"),
            ("a 2>&", "syntax error near >"),
        ] {
            let found = parse(line).map_err(|fault| alloc::format!("{fault}"));
            assert_eq!(found, Err(fault.into()), "{line:?}");
        }
    }

    #[test]
    fn any_line_is_harmless() {
        let mut seed = 1_u32;
        for _ in 0..50_000 {
            let mut line = String::new();
            for _ in 0..20 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let letters: Vec<char> = "ab '\"\\$?{}|&;<>2#ä\t=".chars().collect();
                line.push(letters[(seed >> 8) as usize % letters.len()]);
            }
            if let Ok(chains) = parse(&line) {
                for (_, pipeline) in chains.iter().flat_map(|chain| &chain.pipelines) {
                    assert!(!pipeline.commands.is_empty() && !pipeline.text.is_empty());
                    for word in pipeline.commands.iter().flat_map(|command| &command.words) {
                        word.expand(&value);
                    }
                }
            }
        }
    }
}
