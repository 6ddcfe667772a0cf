//! COPS beside Linux in an open loop: latencies below the overload, throughput in it.

use super::data::Row;
use super::html::table;
use super::models::by_connections;
use super::peers::name;
use super::plot::short;
use super::section::{Section, judged};
use super::standings::{Compared, Sides, Standing, What, standings, standings_table};

/// COPS with the model that it is about. A tie is not below.
const SIDES: Sides = Sides {
    is_ours: |row| row.is("system", "cops") && row.is("model", "kcuc"),
    ours: "COPS",
    others: "the servers of Linux",
    is_tie_enough: false,
};
const LATENCIES: [What; 2] =
    [("latency_us.p50", "median latency", false), ("latency_us.p99", "p99", false)];
const THROUGHPUT: [What; 1] = [("throughput_rps", "throughput", true)];
/// A server is overloaded if it answers less than this part of what is offered.
const ANSWERED: f64 = 0.95;

/// Tables and judgement of the rows of a setting.
pub fn judge(section: &mut Section, setting: &str, rows: &[&Row]) {
    // Another model of COPS is no server of Linux.
    let compared: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| row.is("system", "linux") || (SIDES.is_ours)(row))
        .collect();
    let overload = overload(&compared);
    let is_overload = |row: &&Row| row.number("connections") == overload;
    let (over, below): (Vec<&Row>, Vec<&Row>) = compared.into_iter().partition(is_overload);
    let latencies = standings(&below, &SIDES, &LATENCIES);
    let throughput = standings(&over, &SIDES, &THROUGHPUT);
    section.body += &standings_table(&latencies);
    section.body += &standings_table(&throughput);
    section.body += &all(rows);
    section.found.extend(latencies.iter().filter_map(|compared| compared.found(setting)));
    section.found.extend(answered(setting, &below));
    section.found.push(match throughput.first() {
        Some(throughput) => in_overload(setting, throughput, &over),
        None => format!("{setting}: no number of connections overloads a server."),
    });
}

/// Requests that are due in a second.
fn offered(row: &Row) -> Option<f64> {
    Some(row.number("connections")? * 1e3 / row.number("period_ms")?)
}

/// The largest number of connections that offer more than one of the servers answers.
fn overload(rows: &[&Row]) -> Option<f64> {
    let is_overloaded = |row: &&Row| {
        let answers = row.number("throughput_rps");
        offered(row).zip(answers).is_some_and(|(offered, answers)| answers < ANSWERED * offered)
    };
    let numbers = by_connections(rows).into_iter();
    let overloads = numbers.filter(|(_, rows)| rows.iter().any(is_overloaded));
    overloads.map(|(number, _)| number).next_back()
}

/// Whether COPS leaves no request without its answer: latencies are of answers only.
fn answered(setting: &str, below: &[&Row]) -> Option<String> {
    let ours: Vec<&Row> = below.iter().copied().filter(|row| (SIDES.is_ours)(row)).collect();
    let complete = ours.iter().filter(|row| row.number("errors") == Some(0.0)).count();
    let text = format!(
        "{setting}: below the overload COPS answers every request at {complete} of {} numbers of \
         connections.",
        ours.len()
    );
    (!ours.is_empty()).then(|| judged(complete == ours.len(), &text))
}

fn in_overload(setting: &str, throughput: &Compared, rows: &[&Row]) -> String {
    let pairs = throughput.pairs.iter().map(|pair| {
        let offered = rows.iter().find_map(|row| offered(row)).unwrap_or(0.0);
        judged(
            pair.standing == Standing::Better,
            &format!(
                "{setting}: with {:.0} connections, which offer {offered:.0} requests a second, COPS \
                 answers {:.0}, and the best of the servers of Linux {:.0} ({}): {}.",
                pair.connections,
                pair.ours,
                pair.best,
                pair.model,
                pair.standing.name()
            ),
        )
    });
    pairs.collect()
}

fn all(rows: &[&Row]) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
    let cells = rows.iter().map(|row| {
        let value = |path: &str| shown(row.number(path));
        let spread = row.spread("throughput_rps");
        let unanswered =
            row.number("sent").zip(row.number("received")).map(|(sent, received)| sent - received);
        vec![
            name(row),
            value("connections"),
            value("runs"),
            shown(offered(row)),
            value("throughput_rps"),
            spread.map_or_else(|| "–".to_owned(), |(low, high)| format!("{low:.0} to {high:.0}")),
            value("latency_us.mean"),
            value("latency_us.p50"),
            value("latency_us.p99"),
            value("send_lateness_us.p99"),
            shown(unanswered),
            value("errors"),
        ]
    });
    table(
        &[
            "server",
            "connections",
            "runs",
            "offered a second",
            "answers a second",
            "spread",
            "mean us",
            "p50",
            "p99",
            "client late, p99",
            "unanswered",
            "errors",
        ],
        &cells.collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(system: &str, model: &str, connections: u32, rps: f64, us: f64, errors: u32) -> Row {
        let row = json!({
            "system": system, "model": model, "connections": connections, "matrix": 15,
            "loop": "open", "period_ms": 100, "runs": 5, "sent": connections * 10,
            "received": connections * 10 - errors, "errors": errors, "throughput_rps": rps,
            "latency_us": { "mean": us, "p50": us, "p99": us * 2.0 },
        });
        Row(row.as_object().expect("an object").clone())
    }

    /// Text and body of rows.
    fn judged_of(rows: &[Row]) -> (Vec<String>, String) {
        let mut section = Section::default();
        judge(&mut section, "S", &rows.iter().collect::<Vec<_>>());
        (section.found, section.body)
    }

    fn measured() -> Vec<Row> {
        vec![
            row("cops", "kcuc", 1, 10.0, 100.0, 0),
            row("linux", "epoll", 1, 10.0, 300.0, 0),
            row("linux", "io-uring", 1, 10.0, 200.0, 0),
            row("cops", "kcuc", 64, 640.0, 100.0, 0),
            row("linux", "epoll", 64, 640.0, 102.0, 0),
            row("linux", "io-uring", 64, 640.0, 200.0, 0),
            row("cops", "kcuc", 512, 5120.0, 900.0, 0),
            row("linux", "epoll", 512, 3000.0, 90_000.0, 0),
            row("linux", "io-uring", 512, 5000.0, 800.0, 0),
            row("cops", "kcuc", 1024, 9000.0, 9000.0, 5),
            row("linux", "epoll", 1024, 3000.0, 90_000.0, 70),
            row("linux", "io-uring", 1024, 5000.0, 8000.0, 50),
        ]
    }

    #[test]
    fn latencies_are_judged_below_the_overload_and_throughput_in_it() {
        let (found, body) = judged_of(&measured());
        let [median, p99, answered, overload] = &found[..] else { panic!("{found:?}") };
        // Better at 1, a tie at 64; at 512 io-uring is better, though epoll is overloaded.
        let text = "is better than the best of the servers of Linux at 1 of 3 numbers of \
                    connections, a tie at 1 (at 64), worse at 1 (at 512).";
        assert!(median.contains(&format!("Not met.</span> S: COPS's median latency {text}")));
        assert!(p99.contains(&format!("S: COPS's p99 {text}")), "{p99}");
        assert!(answered.contains(">Met.</span> S: below the overload COPS answers every request"));
        assert!(answered.contains("at 3 of 3"));
        let text = "with 1024 connections, which offer 10240 requests a second, COPS answers 9000, \
                    and the best of the servers of Linux 5000 (io-uring): better.";
        assert!(overload.contains(&format!(">Met.</span> S: {text}")), "{overload}");
        assert!(body.contains("<td>10.2k</td><td>5000</td>"), "{body}");
        // What is not answered is shown.
        assert!(body.contains("<td>70</td><td>70</td>"), "{body}");
    }

    #[test]
    fn a_tie_in_the_overload_is_not_more() {
        let rows = [
            row("cops", "kcuc", 1024, 5100.0, 1.0, 0),
            row("linux", "epoll", 1024, 5000.0, 1.0, 0),
        ];
        let (found, _) = judged_of(&rows);
        assert!(found[0].contains("Not met.") && found[0].contains("(epoll): tie."), "{found:?}");
    }

    #[test]
    fn another_model_of_cops_is_no_server_of_linux() {
        let mut rows = measured();
        rows.insert(0, row("cops", "ktut", 1, 10.0, 1.0, 0));
        assert_eq!(judged_of(&rows).0, judged_of(&measured()).0);
        assert!(judged_of(&rows).1.contains("COPS, ktut"));
    }

    #[test]
    fn without_an_overload_all_latencies_are_judged() {
        let rows: Vec<Row> =
            measured().into_iter().filter(|row| row.number("connections") < Some(512.0)).collect();
        let (found, _) = judged_of(&rows);
        assert!(found[0].contains("at 1 of 2 numbers"), "{found:?}");
        assert_eq!(found[3], "S: no number of connections overloads a server.");
    }

    #[test]
    fn a_request_of_cops_without_an_answer_is_told() {
        let mut rows = measured();
        rows[3] = row("cops", "kcuc", 64, 640.0, 100.0, 1);
        let (found, _) = judged_of(&rows);
        assert!(found[2].contains("Not met.") && found[2].contains("at 2 of 3"), "{found:?}");
    }
}
