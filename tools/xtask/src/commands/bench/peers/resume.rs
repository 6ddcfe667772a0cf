//! `--resume`: the rows of the data file are kept if they were measured in the same way, since a
//! file has one configuration for all of its rows. Otherwise everything is measured anew.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::cells::Cells;
use crate::cli::Bench;
use crate::error::{Because, Outcome};

/// Entries of the configuration that say which rows are measured, and not how; and those that are
/// the same for all of `bench peers`.
const OF_THE_COMMAND: [&str; 4] = ["command", "quick", "icount", "papers_machine"];

/// What the data file has, with `--resume`. `like`: the present configuration.
pub fn earlier(options: &Bench, like: &Map<String, Value>) -> Outcome<Cells> {
    let file = options.json.as_ref().filter(|file| options.resume && file.exists());
    let Some(file) = file else { return Ok(Cells::default()) };
    let text = std::fs::read(file).because(|| format!("cannot read {}", file.display()))?;
    let document: Value =
        serde_json::from_slice(&text).because(|| format!("{} is no JSON", file.display()))?;
    Ok(match obstacle(&document, like) {
        None => Cells::read(&document),
        Some(why) => {
            eprintln!("cops: {} is measured anew: {why}", file.display());
            Cells::default()
        }
    })
}

/// Why the rows of `document` must not be mixed with those that are measured now.
fn obstacle(document: &Value, like: &Map<String, Value>) -> Option<String> {
    let none = Map::new();
    let config = document.get("config").and_then(Value::as_object).unwrap_or(&none);
    // An entry may be missing on one side, as `idle` is unless harts wait awake.
    let names: BTreeSet<&String> = config.keys().chain(like.keys()).collect();
    let compared = names.into_iter().filter(|name| !OF_THE_COMMAND.contains(&name.as_str()));
    let differing = compared.filter(|name| config.get(*name) != like.get(*name)).map(|name| {
        let of = |config: &Map<String, Value>| {
            config.get(name).map_or_else(|| "none".to_owned(), Value::to_string)
        };
        format!("{name} {} is now {}", of(config), of(like))
    });
    let differing: Vec<String> = differing.collect();
    if !differing.is_empty() {
        return Some(differing.join(", "));
    }
    if !like.get("commit").and_then(Value::as_str).is_some_and(is_exact) {
        return Some("the checkout is not exactly a commit, so its code may have changed".into());
    }
    let has_scheduler = like.contains_key("scheduler");
    has_scheduler.then(|| "of the scheduler only the name is known".into())
}

/// Whether a checkout's description names all of its code: it is a commit and nothing else.
fn is_exact(commit: &str) -> bool {
    !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    /// The obstacle to resuming a file that was made with `more` in its configuration, with `now`
    /// in the present one.
    fn judged(more: &Value, now: &Value) -> String {
        let common = json!({ "commit": "0123456789ab", "smp": 1, "seconds": 3, "network": "tap" });
        let with = |value: &Value| {
            let mut config = entries(&common);
            config.extend(entries(value));
            config
        };
        let document = json!({ "config": with(more), "rows": [] });
        obstacle(&document, &with(now)).unwrap_or_default()
    }

    #[test]
    fn rows_that_were_measured_in_the_same_way_are_kept() {
        let command = json!({ "command": "bench peers", "quick": true, "icount": false });
        assert_eq!(judged(&command, &json!({})), "");
    }

    #[test]
    fn rows_of_other_settings_or_code_are_not_kept() {
        let none = json!({});
        for (before, now, why) in [
            (&json!({ "commit": "ab" }), &none, "commit \"ab\" is now \"0123456789ab\""),
            (&json!({ "seconds": 1 }), &none, "seconds 1 is now 3"),
            (&json!({ "idle": "poll" }), &none, "idle \"poll\" is now none"),
            (&none, &json!({ "idle": "poll" }), "idle none is now \"poll\""),
        ] {
            assert_eq!(judged(before, now), why);
        }
        assert!(obstacle(&json!({}), &entries(&json!({ "commit": "ab" }))).is_some());
    }

    #[test]
    fn rows_of_code_that_has_no_name_are_not_kept() {
        for commit in ["0123456789ab-dirty", "0123456789ab, not checked for changes", "unknown"] {
            let same = json!({ "commit": commit });
            assert!(judged(&same, &same).contains("not exactly a commit"), "{commit}");
        }
        let same = json!({ "scheduler": "first-come" });
        assert!(judged(&same, &same).contains("scheduler"));
    }
}
