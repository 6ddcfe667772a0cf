//! Tables: aligned for a terminal, or in Markdown.

/// Rows of cells under a heading. The first `text_columns` columns are aligned left, the others
/// right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    text_columns: usize,
}

impl Table {
    pub fn new(text_columns: usize, heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()], text_columns }
    }

    /// Adds a row. Surplus cells are dropped, missing ones are empty.
    pub fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.rows[0].len(), String::new());
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.rows[0].len())
            .map(|column| {
                self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
            })
            .collect()
    }

    /// The table for a terminal.
    pub fn plain(&self) -> String {
        let widths = self.widths();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column < self.text_columns {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let mut text = line(&self.rows[0]);
        let marks = (0..self.rows[0].len())
            .map(|column| if column < self.text_columns { "---" } else { "---:" });
        text += &format!("| {} |\n", marks.collect::<Vec<_>>().join(" | "));
        text + &self.rows[1..].iter().map(line).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(1, &["name", "us"]);
        table.add(["a".into(), "100".into()]);
        table.add(["longer".into()]);
        assert_eq!(table.plain(), "name     us\na       100\nlonger\n");
        assert_eq!(table.markdown(), "| name | us |\n| --- | ---: |\n| a | 100 |\n| longer |  |\n");
    }
}
