//! The Markdown.

use std::fmt::Write;

use super::machine::Machine;
use crate::contender::Contender;
use crate::driver::{Cell, Outcome, Plan, Results};
use crate::operation::{Operation, bytes::FUTURE_BYTES};
use crate::rows::{Row, TABLES, Table};

/// What the figures are and where they were made.
pub fn head(plan: &Plan, outcome: &Outcome, machine: &Machine) -> String {
    let valgrind = outcome.valgrind.as_deref().unwrap_or("not counted");
    let mut text = format!(
        "# cops-executor beside its peers\n\n\
         Commit {}; {}, {} processors; {}, profile {}, {} LTO; instructions: {}.\n\
         Peers: {}.\n\n\
         {} Instructions are the process's own, the difference of two runs of different\n\
         length; times are the fastest of {} runs, with the runtimes in turn. The futures are the same for all, of 16\n\
         bytes and written by hand. –: not measured, or means nothing there. Bold: the lowest but raw polling.\n",
        machine.commit,
        machine.cpu,
        machine.processors,
        machine.rustc,
        machine.profile,
        if machine.profile == "lto" { "fat" } else { "no" },
        valgrind,
        machine.peers.join(", "),
        match &outcome.times_of_commit {
            Some(commit) => format!(
                "Counts are of this run. Polls that several threads make side by side, and times, are of earlier ones, the times of commit {commit}."
            ),
            None => "Every figure is of this run.".to_owned(),
        },
        plan.runs,
    );
    if plan.is_quick {
        text.push_str("A quick run: a tenth of the operations.\n");
    }
    for failure in &outcome.failures {
        let first_line = failure.lines().next().unwrap_or_default();
        let _ = writeln!(text, "Failed: {first_line}");
    }
    text
}

/// One table for each group of rows of which anything is known.
pub fn tables(results: &Results) -> String {
    TABLES.iter().filter_map(|table| one(table, results)).collect()
}

/// A figure for each contender, already in words.
struct Column {
    head: String,
    figures: Vec<Option<(f64, String)>>,
}

fn one(table: &Table, results: &Results) -> Option<String> {
    let mut columns: Vec<Column> =
        table.rows.iter().flat_map(|row| columns_of(row, results)).collect();
    columns.extend(against_one(table, results));
    columns.extend(against_tokio(table, results));
    columns.retain(|column| column.figures.iter().any(Option::is_some));
    if columns.is_empty() {
        return None;
    }
    let mut text = format!("\n## {}\n\n{}\n\n|", table.title, table.note);
    for column in &columns {
        let _ = write!(text, " | {}", column.head);
    }
    let _ = writeln!(text, " |\n|{}", " --- |".repeat(columns.len() + 1));
    for (number, contender) in Contender::ALL.into_iter().enumerate() {
        if columns.iter().all(|column| column.figures[number].is_none()) {
            continue;
        }
        let _ = write!(text, "| {}", contender.title());
        for column in &columns {
            let _ = write!(text, " | {}", column.shown(number));
        }
        text.push_str(" |\n");
    }
    Some(text)
}

impl Column {
    fn new(head: String, figure: impl Fn(Contender) -> Option<(f64, String)>) -> Column {
        Column { head, figures: Contender::ALL.into_iter().map(figure).collect() }
    }

    fn lowest(&self) -> Option<f64> {
        let compared = self
            .figures
            .iter()
            .zip(Contender::ALL)
            .filter(|(_, contender)| *contender != Contender::Raw);
        compared.filter_map(|(figure, _)| Some(figure.as_ref()?.0)).min_by(f64::total_cmp)
    }

    fn shown(&self, number: usize) -> String {
        match &self.figures[number] {
            None => "–".to_owned(),
            Some((figure, words)) if Some(*figure) == self.lowest() => format!("**{words}**"),
            Some((_, words)) => words.clone(),
        }
    }
}

fn columns_of(row: &Row, results: &Results) -> Vec<Column> {
    let cell = |contender: Contender| results.get(&(row.key, contender.key()));
    match row.operation {
        Operation::Bytes => vec![
            Column::new("beside the future".to_owned(), |contender| {
                let each = cell(contender)?.bytes?;
                let each =
                    if contender == Contender::Threads { each } else { each - FUTURE_BYTES as f64 };
                Some((each, format!("{each:.1}")))
            }),
            Column::new("with it".to_owned(), |contender| {
                let each = cell(contender)?.bytes?;
                Some((each, format!("{each:.1}")))
            }),
        ],
        Operation::Urgent { .. } => vec![Column::new(row.head.to_owned(), |contender| {
            let counts = &cell(contender)?.counts;
            let most = counts.last()?;
            // The smallest count that 99 of 100 trials do not exceed.
            let (median, nearly_all) =
                (counts[(counts.len() - 1) / 2], counts[(counts.len() * 99).div_ceil(100) - 1]);
            Some((nearly_all as f64, format!("{median} / {nearly_all} / {most}")))
        })],
        _ => vec![
            Column::new(format!("{}: instructions", row.head), |contender| {
                let each = cell(contender)?.instructions?;
                Some((each, format!("{each:.1}")))
            }),
            Column::new(format!("{}: ns", row.head), |contender| {
                let each = cell(contender).and_then(Cell::fastest)?;
                Some((each, format!("{each:.1}")))
            }),
        ],
    }
}

/// Of a table of two workers: two against one, in wall time and in processor time.
fn against_one(table: &Table, results: &Results) -> Vec<Column> {
    let of = |workers: u32| {
        table.rows.iter().find(|row| matches!(row.operation, Operation::Contended { workers: so_many, .. } if so_many == workers))
    };
    let (Some(one), Some(two)) = (of(1), of(2)) else { return Vec::new() };
    let cell = |row: &Row, contender: Contender| results.get(&(row.key, contender.key()));
    let wall = Column::new("wall, 2 against 1: best quarter (median)".to_owned(), |contender| {
        let [best, median, _] = quartiles(pairs(
            &cell(two, contender)?.nanoseconds,
            &cell(one, contender)?.nanoseconds,
        ))?;
        Some((best, format!("{best:.2} ({median:.2})")))
    });
    let cpu = Column::new(
        "processor time of both threads, 2 against 1: median".to_owned(),
        |contender| {
            let (two, one) = (cell(two, contender)?, cell(one, contender)?);
            let [_, median, _] = quartiles(pairs(&two.cpu_nanoseconds, &one.cpu_nanoseconds))?;
            Some((median, format!("{median:.2}")))
        },
    );
    vec![wall, cpu]
}

/// Of a table of wakes across threads: for each row, run by run, the time against that of tokio
/// with the same number of threads.
fn against_tokio(table: &Table, results: &Results) -> Vec<Column> {
    let is_wake =
        |row: &&Row| matches!(row.operation, Operation::Ping { .. } | Operation::Wake { .. });
    let columns = table.rows.iter().filter(is_wake).map(|row| {
        Column::new(
            format!("{}: against tokio, multi-thread: median (quartiles)", row.head),
            |contender| {
                let times = |contender: Contender| {
                    Some(&results.get(&(row.key, contender.key()))?.nanoseconds)
                };
                let [low, median, high] =
                    quartiles(pairs(times(contender)?, times(Contender::TokioMulti)?))?;
                Some((median, format!("{median:.2} ({low:.2} to {high:.2})")))
            },
        )
    });
    columns.collect()
}

/// Ratios, run by run.
fn pairs(these: &[f64], those: &[f64]) -> Vec<f64> {
    these.iter().zip(those).map(|(this, that)| this / that).collect()
}

/// Lower quartile, median, upper quartile.
fn quartiles(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some([values[last / 4], values[last / 2], values[last * 3 / 4]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_bold_and_raw_polling_is_not() {
        let mut results = Results::new();
        for (contender, instructions) in [("raw", 45.0), ("cops", 60.0), ("embassy", 60.5)] {
            results.insert(
                ("yield-10", contender),
                Cell { instructions: Some(instructions), ..Cell::default() },
            );
        }
        let text = tables(&results);
        assert!(text.contains("| raw polling of boxed futures | 45.0 |"), "{text}");
        assert!(text.contains("| **cops-executor**, futures boxed | **60.0** |"), "{text}");
        assert!(text.contains("| embassy-executor, futures in slots | 60.5 |"), "{text}");
        assert!(!text.contains("tokio"), "{text}");
    }

    #[test]
    fn two_workers_are_compared_with_one_run_by_run() {
        let mut results = Results::new();
        for (row, fastest) in [("contended-1", 20.0), ("contended-2", 11.0)] {
            let cell = Cell {
                nanoseconds: vec![fastest, 2.0 * fastest],
                cpu_nanoseconds: vec![30.0, 60.0],
                ..Cell::default()
            };
            results.insert((row, "cops"), cell);
        }
        let text = tables(&results);
        assert!(text.contains("**0.55 (0.55)** | **1.00** |"), "{text}");
    }

    #[test]
    fn wakes_are_compared_with_those_of_tokio_run_by_run() {
        let mut results = Results::new();
        for (contender, nanoseconds) in
            [("cops", [10.0, 30.0, 90.0]), ("tokio-multi", [20.0, 30.0, 60.0])]
        {
            let cell = Cell { nanoseconds: nanoseconds.to_vec(), ..Cell::default() };
            results.insert(("wake-parked", contender), cell);
        }
        let text = tables(&results);
        assert!(text.contains("1.00 (0.50 to 1.00)"), "{text}");
    }
}
