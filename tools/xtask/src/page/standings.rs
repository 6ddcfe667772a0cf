//! How KCUC stands beside the other models at each number of connections: better, in a tie, or
//! worse than the best of them.

use super::data::Row;
use super::html::table;
use super::models::by_connections;
use super::plot::short;
use super::section::judged;

/// Values that are closer are a tie.
const TIE: f64 = 0.05;

/// What is compared: its path, its name, whether more is better.
const COMPARED: [(&str, &str, bool); 3] = [
    ("latency_us.mean", "mean latency", false),
    ("latency_us.p99", "p99", false),
    ("throughput_rps", "throughput", true),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Better,
    Tie,
    Worse,
}

impl Standing {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Tie => "tie",
            Self::Worse => "worse",
        }
    }
}

/// KCUC and the best of the others, at a number of connections.
#[derive(Debug)]
struct Pair {
    connections: f64,
    ours: f64,
    best: f64,
    model: String,
    standing: Standing,
}

/// One value at each number of connections.
#[derive(Debug)]
pub struct Compared {
    what: &'static str,
    pairs: Vec<Pair>,
}

/// The comparisons of rows that differ in model and number of connections only.
pub fn standings(rows: &[&Row]) -> Vec<Compared> {
    let compared = COMPARED.into_iter().map(|(path, what, is_more_better)| {
        let pairs = by_connections(rows).into_iter().filter_map(|(connections, rows)| {
            pair(&rows, path, is_more_better).map(|pair| Pair { connections, ..pair })
        });
        Compared { what, pairs: pairs.collect() }
    });
    compared.filter(|compared| !compared.pairs.is_empty()).collect()
}

fn pair(rows: &[&Row], path: &str, is_more_better: bool) -> Option<Pair> {
    let our_row = rows.iter().find(|row| row.is("model", "kcuc"))?;
    let ours = our_row.number(path)?;
    // So that the smaller one is the better one.
    let order = |value: f64| if is_more_better { -value } else { value };
    let others = rows.iter().filter(|row| !row.is("model", "kcuc"));
    let others = others.filter_map(|row| Some((row, row.number(path)?)));
    let (row, best) =
        others.min_by(|(_, one), (_, other)| order(*one).total_cmp(&order(*other)))?;
    let spread = |row: &Row, value: f64| row.spread(path).unwrap_or((value, value));
    let ((low, high), (least, most)) = (spread(our_row, ours), spread(row, best));
    let is_tie = (ours - best).abs() <= TIE * best || (low <= most && least <= high);
    let standing = match order(ours) <= order(best) {
        _ if is_tie => Standing::Tie,
        true => Standing::Better,
        false => Standing::Worse,
    };
    Some(Pair { connections: 0.0, ours, best, model: row.text("model").to_owned(), standing })
}

impl Compared {
    /// The sentence of what was found.
    pub fn found(&self, setting: &str) -> Option<String> {
        let of = |standing: Standing| {
            let pairs = self.pairs.iter().filter(move |pair| pair.standing == standing);
            pairs.map(|pair| format!("{:.0}", pair.connections)).collect::<Vec<_>>()
        };
        let [better, ties, worse] = [Standing::Better, Standing::Tie, Standing::Worse].map(of);
        let at = |connections: &[String]| match connections {
            [] => String::new(),
            some => format!(" (at {})", some.join(", ")),
        };
        let what = self.what;
        Some(judged(
            worse.is_empty(),
            &format!(
                "{setting}: KCUC's {what} is better than the best of the other models at {} of {} \
                 numbers of connections, a tie at {}{}, worse at {}{}.",
                better.len(),
                self.pairs.len(),
                ties.len(),
                at(&ties),
                worse.len(),
                at(&worse)
            ),
        ))
    }
}

/// KCUC beside the best of the others, with a row for each number of connections.
pub fn standings_table(all: &[Compared]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let mut heading = vec!["connections"];
    for compared in all {
        heading.extend([compared.what, "best of the others", ""]);
    }
    let rows = first.pairs.iter().map(|pair| {
        let mut cells = vec![short(pair.connections)];
        for compared in all {
            let of = compared.pairs.iter().find(|other| other.connections == pair.connections);
            cells.extend(of.map_or_else(Default::default, |pair| {
                let best = format!("{} ({})", short(pair.best), pair.model);
                [short(pair.ours), best, pair.standing.name().to_owned()]
            }));
        }
        cells
    });
    format!(
        "<p>KCUC beside the best of the other models; latencies in microseconds. A tie: they differ \
         by at most {:.0}%, or the spreads of the runs overlap.</p>\n{}",
        TIE * 100.0,
        table(&heading, &rows.collect::<Vec<_>>())
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row(value: Value) -> Row {
        Row(value.as_object().expect("an object").clone())
    }

    fn of(model: &str, connections: u32, mean: f64, spread: [f64; 2]) -> Row {
        row(json!({ "model": model, "connections": connections, "latency_us": { "mean": mean },
            "spread": { "latency_us.mean": spread } }))
    }

    #[test]
    fn ties_are_what_is_close_or_overlaps() {
        let rows = [
            of("kcuc", 1, 100.0, [99.0, 101.0]),
            of("ktut", 1, 120.0, [119.0, 121.0]),
            of("ktuc", 1, 97.0, [97.0, 97.0]),
            of("kcuc", 8, 100.0, [99.0, 101.0]),
            of("ktut", 8, 120.0, [119.0, 121.0]),
            of("kcuc", 64, 100.0, [90.0, 130.0]),
            of("ktut", 64, 80.0, [70.0, 91.0]),
            of("kcuc", 256, 100.0, [99.0, 101.0]),
            of("ktut", 256, 80.0, [79.0, 81.0]),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let all = standings(&rows);
        assert_eq!(all.len(), 1, "nothing else is there to compare");
        let found = all[0].found("S").unwrap();
        assert!(found.contains("better than the best of the other models at 1 of 4"), "{found}");
        assert!(found.contains("a tie at 2 (at 1, 64), worse at 1 (at 256)"), "{found}");
        assert!(found.contains("Not met."));
        let html = standings_table(&all);
        assert!(html.contains("<td>100</td><td>97 (ktuc)</td><td>tie</td>"), "{html}");
    }

    #[test]
    fn more_throughput_is_better() {
        let of = |model: &str, rps: f64| {
            row(json!({ "model": model, "connections": 1, "throughput_rps": rps }))
        };
        let rows = [of("kcuc", 100.0), of("ktut", 50.0), of("ktuc", 80.0)];
        let all = standings(&rows.iter().collect::<Vec<_>>());
        assert!(all[0].found("S").unwrap().contains("at 1 of 1"));
        assert!(standings_table(&all).contains("80 (ktuc)"));
    }
}
