//! The word list, and where its words occur in prose.

use crate::repository::list_entries;

/// Words for people: after one of them "who" is right.
const PEOPLE: [&str; 15] = [
    "author",
    "contributor",
    "developer",
    "maintainer",
    "newcomer",
    "people",
    "person",
    "programmer",
    "reader",
    "researcher",
    "reviewer",
    "stranger",
    "student",
    "teacher",
    "user",
];
/// Words that never stand twice in a row.
const ONCE: [&str; 18] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "is", "not", "of", "or",
    "the", "to", "with",
];

/// Words and phrases that are not used, each with what to do instead.
#[derive(Debug)]
pub struct WordList {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    words: Vec<String>,
    advice: String,
}

/// A word of the list in a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Counted from 1.
    pub line: usize,
    pub word: String,
    pub advice: String,
}

/// A word in lower case, or the end of a sentence.
struct Token {
    line: usize,
    word: Option<String>,
}

impl Entry {
    /// `None` if no text could contain the phrase: it has no words, or signs between them.
    fn new(phrase: &str, advice: &str) -> Option<Self> {
        let words: Vec<String> =
            tokens(phrase).into_iter().map(|token| token.word).collect::<Option<_>>()?;
        (!words.is_empty()).then(|| Self { words, advice: advice.into() })
    }
}

impl WordList {
    /// Reads lines `WORD OR PHRASE | WHAT TO DO` of `file`; what cannot be read is returned beside
    /// the list.
    pub fn parse(file: &str, list: &str) -> (Self, Vec<String>) {
        let (mut entries, mut wrong) = (Vec::new(), Vec::new());
        for (line, fields) in list_entries(list) {
            let entry = match fields.as_slice() {
                [phrase, advice] if !advice.is_empty() => Entry::new(phrase, advice),
                _ => None,
            };
            match entry {
                Some(entry) => entries.push(entry),
                None => {
                    wrong.push(format!("{}/{file}:{line}: not `WORD | WHAT TO DO`", super::HERE))
                }
            }
        }
        (Self { entries }, wrong)
    }

    /// Every place where a word of the list stands, also across the end of a line, and every small
    /// word that stands twice.
    pub fn find(&self, prose: &str) -> Vec<Found> {
        let tokens = tokens(prose);
        let mut found = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            let Some(word) = token.word.as_deref() else { continue };
            let before = index.checked_sub(1).and_then(|place| tokens[place].word.as_deref());
            if before == Some(word) && ONCE.contains(&word) {
                found.push(Found {
                    line: token.line,
                    word: format!("{word} {word}"),
                    advice: "the word stands twice".into(),
                });
            }
            if word == "who" && before.is_some_and(is_person) {
                continue;
            }
            for entry in self.entries.iter().filter(|entry| entry.words[0] == word) {
                let here = tokens[index..].iter().map(|token| token.word.as_deref());
                let matches = here
                    .take(entry.words.len())
                    .eq(entry.words.iter().map(|word| Some(word.as_str())));
                if matches {
                    found.push(Found {
                        line: token.line,
                        word: entry.words.join(" "),
                        advice: entry.advice.clone(),
                    });
                }
            }
        }
        found
    }
}

fn is_person(word: &str) -> bool {
    PEOPLE.contains(&word) || word.strip_suffix('s').is_some_and(|one| PEOPLE.contains(&one))
}

fn tokens(prose: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (index, line) in prose.split('\n').enumerate() {
        let line_number = index + 1;
        let mut word = String::new();
        let mut letters = line.chars().chain([' ']);
        while let Some(letter) = letters.next() {
            if letter.is_alphanumeric() || letter == '_' || letter == '\'' {
                word.extend(letter.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                let plain = word.strip_suffix("'s").unwrap_or(&word).to_owned();
                word.clear();
                tokens.push(Token { line: line_number, word: Some(plain) });
            }
            // Signs of a comment and spaces end no sentence; other signs do, and so do placeholders
            // and escapes.
            let is_mark = letter == '!' && line.trim_start().starts_with("//!");
            if !is_mark && !matches!(letter, ' ' | '/' | '*' | '#' | '>') {
                tokens.push(Token { line: line_number, word: None });
            }
            if letter == '\\' {
                letters.next();
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prose: &str) -> Vec<(usize, String)> {
        let (list, wrong) = WordList::parse("list", "# a comment\nwho | x\nlet go of | drop\n");
        assert!(wrong.is_empty());
        list.find(prose).into_iter().map(|found| (found.line, found.word)).collect()
    }

    #[test]
    fn words_are_found_in_any_case_and_phrases_across_lines() {
        assert_eq!(
            found("Who waits\nand is let\ngo of"),
            [(1, "who".into()), (2, "let go of".into())]
        );
        assert_eq!(found("who's next"), [(1, "who".into())]);
        assert_eq!(found("//! is let\n//! go of"), [(1, "let go of".into())]);
    }

    #[test]
    fn parts_of_words_and_other_sentences_are_not() {
        assert_eq!(found("whole, unwho, let go. Of course"), []);
    }

    #[test]
    fn people_are_who() {
        assert_eq!(
            found("a reader who asks, people who ask, a hart who asks"),
            [(1, "who".into())]
        );
    }

    #[test]
    fn a_word_that_stands_twice_is_found() {
        assert_eq!(found("of the\n/// the hart; had had, in {in}"), [(2, "the the".into())]);
    }

    #[test]
    fn lines_that_cannot_be_read_are_named() {
        for malformed in
            ["who", "whose |", "| name it", "give-back | free", "... | shorten", "a | b | c"]
        {
            assert_eq!(WordList::parse("list", malformed).1.len(), 1, "{malformed}");
        }
    }
}
