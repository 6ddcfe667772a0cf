//! The names in Rust code as sentences, in which the word list for names is looked up.

use super::super::rust_source::code_only;

/// Variables, fields and parameters that are called after a number and have a priority.
const LEVELS: [&str; 3] = ["level: Priority", "level: Option<Priority>", "level: AtomicPriority"];

/// Each name as a sentence of its words: `give_way` and `GiveWay` become "give way". A `level` that
/// is a priority becomes "level of type priority". Lines stay where they are.
pub fn sentences(source: &str) -> String {
    let mut code = code_only(source);
    for pattern in LEVELS {
        code = code.replace(pattern, "level_of_type_priority");
    }
    let mut sentences = String::with_capacity(2 * code.len());
    let mut before = ' ';
    for letter in code.chars() {
        match letter {
            '\n' => sentences.push_str(" .\n"),
            '_' => sentences.push(' '),
            _ if letter.is_alphanumeric() => {
                if letter.is_uppercase() && before.is_lowercase() {
                    sentences.push(' ');
                }
                sentences.push(letter);
            }
            _ => sentences.push_str(" . "),
        }
        before = letter;
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::words::WordList;
    use super::*;

    fn found(source: &str) -> Vec<(usize, String)> {
        let (list, wrong) =
            WordList::parse("list", "give way | x\nlevel of type priority | x\nwho | x\n");
        assert!(wrong.is_empty());
        list.find(&sentences(source)).into_iter().map(|found| (found.line, found.word)).collect()
    }

    #[test]
    fn names_are_found_in_either_case_and_inside_longer_ones() {
        let code = "fn give_way() {}\nstruct GiveWayNow;\nconst MUST_GIVE_WAY: u8 = 0;";
        assert_eq!(found(code), [1, 2, 3].map(|line| (line, "give way".into())));
    }

    #[test]
    fn comments_literals_and_neighbours_are_not() {
        assert_eq!(found("// give_way\nlet give = way(\"give_way\", whole);\ngive\n_way"), []);
    }

    #[test]
    fn a_level_that_is_a_priority_is_found() {
        let code = "fn f(level: Priority, at: u8) {}\nstruct S { level: u8 }";
        assert_eq!(found(code), [(1, "level of type priority".into())]);
    }
}
