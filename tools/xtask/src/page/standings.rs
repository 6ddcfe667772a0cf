//! How one side stands beside the other at each number of connections: better, in a tie, or worse
//! than the best of them. The sides are KCUC and the other models, or COPS and servers of Linux.

use super::data::Row;
use super::html::table;
use super::models::by_connections;
use super::plot::short;
use super::section::judged;

/// Values that are closer are a tie.
const TIE: f64 = 0.05;

/// What is compared: its path, its name, whether more is better.
pub type What = (&'static str, &'static str, bool);

/// What the models are compared by.
pub const OF_MODELS: [What; 3] = [
    ("latency_us.mean", "mean latency", false),
    ("latency_us.p99", "p99", false),
    ("throughput_rps", "throughput", true),
];

/// The same where instructions were counted.
pub const INSTRUCTIONS: What = ("instructions_per_request", "instructions of a request", false);

/// The two sides: which rows are ours, and the words for both.
#[derive(Debug)]
pub struct Sides {
    pub is_ours: fn(&Row) -> bool,
    pub ours: &'static str,
    pub others: &'static str,
    /// Whether a claim is met that is a tie somewhere.
    pub is_tie_enough: bool,
}

pub const MODELS: Sides = Sides {
    is_ours: |row| row.is("model", "kcuc"),
    ours: "KCUC",
    others: "the other models",
    is_tie_enough: true,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Better,
    Tie,
    Worse,
}

impl Standing {
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Tie => "tie",
            Self::Worse => "worse",
        }
    }
}

/// Ours and the best of the others, at a number of connections.
#[derive(Debug)]
pub struct Pair {
    pub connections: f64,
    pub ours: f64,
    pub best: f64,
    /// The model of the best.
    pub model: String,
    pub standing: Standing,
}

/// One value at each number of connections.
#[derive(Debug)]
pub struct Compared {
    sides: &'static Sides,
    what: &'static str,
    pub pairs: Vec<Pair>,
}

/// The comparisons of rows that differ in model and number of connections only.
pub fn standings(rows: &[&Row], sides: &'static Sides, whats: &[What]) -> Vec<Compared> {
    let compared = whats.iter().map(|&(path, what, is_more_better)| {
        let pairs = by_connections(rows).into_iter().filter_map(|(connections, rows)| {
            pair(&rows, sides, path, is_more_better).map(|pair| Pair { connections, ..pair })
        });
        Compared { sides, what, pairs: pairs.collect() }
    });
    compared.filter(|compared| !compared.pairs.is_empty()).collect()
}

fn pair(rows: &[&Row], sides: &Sides, path: &str, is_more_better: bool) -> Option<Pair> {
    // A latency of zero is that of no answer.
    let value = |row: &Row| row.number(path).filter(|value| is_more_better || *value > 0.0);
    let our_row = rows.iter().find(|row| (sides.is_ours)(row))?;
    let ours = value(our_row)?;
    // So that the smaller one is the better one.
    let order = |value: f64| if is_more_better { -value } else { value };
    let others = rows.iter().filter(|row| !(sides.is_ours)(row));
    let others = others.filter_map(|row| Some((row, value(row)?)));
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
        let Sides { ours, others, is_tie_enough, .. } = self.sides;
        Some(judged(
            worse.is_empty() && (*is_tie_enough || ties.is_empty()),
            &format!(
                "{setting}: {ours}'s {what} is better than the best of {others} at {} of {} \
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

/// Ours beside the best of the others, with a row for each number of connections.
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
    let Sides { ours, others, .. } = first.sides;
    format!(
        "<p>{ours} beside the best of {others}; latencies in microseconds. A tie: they differ \
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
        let all = standings(&rows, &MODELS, &OF_MODELS);
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
        let all = standings(&rows.iter().collect::<Vec<_>>(), &MODELS, &OF_MODELS);
        assert!(all[0].found("S").unwrap().contains("at 1 of 1"));
        assert!(standings_table(&all).contains("80 (ktuc)"));
    }

    #[test]
    fn the_sides_say_what_is_ours_and_whether_a_tie_is_enough() {
        static STRICT: Sides = Sides {
            is_ours: |row| row.is("model", "ktuc"),
            ours: "KTUC",
            others: "the rest",
            is_tie_enough: false,
        };
        let rows = [of("kcuc", 1, 100.0, [99.0, 101.0]), of("ktuc", 1, 98.0, [97.0, 98.0])];
        let rows: Vec<&Row> = rows.iter().collect();
        let found = |sides: &'static Sides| {
            standings(&rows, sides, &OF_MODELS)[0].found("S").expect("is found")
        };
        assert!(found(&MODELS).contains("Met.") && !found(&MODELS).contains("Not met."));
        let strict = found(&STRICT);
        assert!(strict.contains("Not met.</span> S: KTUC's mean latency is better"), "{strict}");
        assert!(strict.contains("the best of the rest at 0 of 1"), "{strict}");
    }

    #[test]
    fn a_latency_of_zero_is_that_of_no_answer() {
        let rows = [
            of("kcuc", 1, 100.0, [99.0, 101.0]),
            of("ktut", 1, 120.0, [119.0, 121.0]),
            of("ktuc", 1, 0.0, [0.0, 0.0]),
            of("kcuc", 8, 0.0, [0.0, 0.0]),
            of("ktut", 8, 120.0, [119.0, 121.0]),
        ];
        let all = standings(&rows.iter().collect::<Vec<_>>(), &MODELS, &OF_MODELS);
        let pairs: Vec<_> =
            all[0].pairs.iter().map(|pair| (pair.connections, pair.best, pair.standing)).collect();
        assert_eq!(pairs, [(1.0, 120.0, Standing::Better)]);
    }
}
