//! The instructions that operations may take: `docs/switch-budget.txt`.

use crate::error::{Because, Failure, Outcome};
use crate::workspace::Workspace;

const FILE: &str = "docs/switch-budget.txt";

/// The operations and what they may take, in the order of the file.
#[derive(Debug)]
pub struct SwitchBudget(Vec<(String, u64)>);

impl SwitchBudget {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or has a line of another form.
    pub fn read(workspace: &Workspace) -> Outcome<Self> {
        let text = std::fs::read_to_string(workspace.root.join(FILE))
            .because(|| format!("cannot read {FILE}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Outcome<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let budget = lines.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [operation, allowed] = words[..] else {
                return Err(Failure::new(format!("{FILE}: {line:?} is no operation and number")));
            };
            let allowed = allowed.parse().because(|| format!("{FILE}: {line:?} has no number"))?;
            Ok((operation.to_owned(), allowed))
        });
        budget.collect::<Outcome<_>>().map(Self)
    }

    /// What an operation may take.
    pub fn allowed(&self, operation: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| name == operation).map(|&(_, allowed)| allowed)
    }

    /// The operations that take more than they may, or were not measured.
    pub fn exceeded(&self, measured: impl Fn(&str) -> Option<u64>) -> Vec<String> {
        let exceeded = self.0.iter().filter_map(|(operation, allowed)| {
            let measured = measured(operation);
            measured
                .is_none_or(|measured| measured > *allowed)
                .then(|| format!("{operation}: {measured:?} instructions, {allowed} are allowed"))
        });
        exceeded.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_rose_or_is_missing_is_found() {
        let budget = SwitchBudget::parse("# a comment\n\ncall  10\nswitch 200\n").unwrap();
        assert_eq!((budget.allowed("call"), budget.allowed("other")), (Some(10), None));
        let of = |call, switch| {
            budget.exceeded(move |name| if name == "call" { call } else { switch }).len()
        };
        assert_eq!(of(Some(10), Some(200)), 0);
        assert_eq!(of(Some(11), Some(200)), 1);
        assert_eq!(of(None, Some(201)), 2);
    }

    #[test]
    fn a_line_of_another_form_is_an_error() {
        for text in ["call", "call ten", "call 10 11"] {
            assert!(SwitchBudget::parse(text).is_err(), "{text}");
        }
    }
}
