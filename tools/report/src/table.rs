//! Text tables with aligned columns.

use std::fmt;

/// Rows of text under titles. A column is aligned right if every cell below its title begins with a
/// digit or a sign (figures, `-` for none), otherwise left.
#[derive(Clone, Debug, Default)]
pub struct Table {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<T: Into<String>>(titles: impl IntoIterator<Item = T>) -> Self {
        Self { titles: titles.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Appends a row. Missing cells are left empty.
    ///
    /// # Panics
    ///
    /// If there are more cells than titles.
    pub fn push<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert!(cells.len() <= self.titles.len(), "more cells than titles");
        cells.resize(self.titles.len(), String::new());
        self.rows.push(cells);
    }

    fn column(&self, at: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row[at].as_str())
    }

    fn is_right_aligned(&self, at: usize) -> bool {
        let looks_like_a_figure = |cell: &str| {
            cell.starts_with(|first: char| first.is_ascii_digit() || "+-".contains(first))
        };
        !self.rows.is_empty() && self.column(at).all(looks_like_a_figure)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<(usize, bool)> = (0..self.titles.len())
            .map(|at| {
                let cells = self.column(at).chain([self.titles[at].as_str()]);
                (
                    cells.map(|cell| cell.chars().count()).max().unwrap_or(0),
                    self.is_right_aligned(at),
                )
            })
            .collect();
        for cells in std::iter::once(&self.titles).chain(&self.rows) {
            let mut line = String::new();
            for (cell, (width, right)) in cells.iter().zip(&columns) {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) =
                    if *right { (padding.as_str(), "") } else { ("", padding.as_str()) };
                line += &format!("{before}{cell}{after}  ");
            }
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_right_and_words_left() {
        let mut table = Table::new(["class", "answers", "p99", "note"]);
        table.push(["all", "3200", "1.4 ms", "ünïcode"]);
        table.push(["0", "5", "12.25 ms"]);
        assert_eq!(
            table.to_string(),
            "class  answers       p99  note\n\
             all       3200    1.4 ms  ünïcode\n\
             0            5  12.25 ms\n"
        );
    }

    #[test]
    #[should_panic(expected = "more cells than titles")]
    fn a_row_too_long_is_a_mistake() {
        Table::new(["one"]).push(["1", "2"]);
    }
}
