//! Paths into a data file: `rows[connections=64,model=kcuc].latency_us.p50`.
//!
//! Steps are separated by dots. `["name"]` is a field with dots in its name. `[N]` is an element of
//! a list. `[key=value,...]` is the single element with these values in its fields; it is an error
//! if there is none or there are several.

use serde_json::Value;

/// The value at `path` in `value`.
pub fn find<'a>(value: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut found = value;
    for step in steps(path)? {
        found = match step {
            Step::Field(name) => {
                found.get(name).ok_or_else(|| format!("there is no field {name:?}"))?
            }
            Step::Element(index) => {
                found.get(index).ok_or_else(|| format!("there is no element {index}"))?
            }
            Step::Where(conditions) => {
                let list =
                    found.as_array().ok_or("[key=value] asks for an element of what is no list")?;
                let mut matching = list.iter().filter(|element| {
                    conditions.iter().all(|(key, wanted)| {
                        element.get(key).is_some_and(|value| is(value, wanted))
                    })
                });
                match (matching.next(), matching.next()) {
                    (Some(only), None) => only,
                    (None, _) => return Err(format!("no element has {conditions:?}")),
                    (Some(_), Some(_)) => {
                        return Err(format!("several elements have {conditions:?}"));
                    }
                }
            }
        };
    }
    Ok(found)
}

enum Step<'a> {
    Field(&'a str),
    Element(usize),
    Where(Vec<(&'a str, &'a str)>),
}

fn is(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => {
            number.to_string() == wanted
                || number.as_f64().zip(wanted.parse().ok()).is_some_and(|(a, b): (f64, f64)| a == b)
        }
        Value::Bool(truth) => truth.to_string() == wanted,
        Value::Null => wanted == "null",
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn steps(path: &str) -> Result<Vec<Step<'_>>, String> {
    let mut steps = Vec::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (inside, behind) =
                inner.split_once(']').ok_or_else(|| format!("{path:?} has a [ without a ]"))?;
            let quoted = inside.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
            steps.push(match (quoted, inside.parse()) {
                (Some(name), _) => Step::Field(name),
                (None, Ok(index)) => Step::Element(index),
                (None, Err(_)) => {
                    let conditions = inside.split(',').map(|part| part.split_once('='));
                    Step::Where(
                        conditions.collect::<Option<_>>().ok_or_else(|| {
                            format!("[{inside}] is neither a number nor key=value")
                        })?,
                    )
                }
            });
            rest = behind;
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end == 0 {
            return Err(format!("{path:?} is no path"));
        }
        steps.push(Step::Field(&rest[..end]));
        rest = &rest[end..];
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_values() {
        let data = json!({"rows": [{"n": 1, "m": "a", "us": {"p50": 3.5}}, {"n": 2.0, "m": "a"}, {"n": 2, "m": "b"}]});
        assert_eq!(find(&data, "rows[0].us.p50"), Ok(&json!(3.5)));
        assert_eq!(find(&data, "rows[n=2,m=b].m"), Ok(&json!("b")));
        assert_eq!(find(&data, "rows[n=2,m=a].m"), Ok(&json!("a")));
        let dotted = json!({"spread": {"us.p99": [1, 2]}});
        assert_eq!(find(&dotted, r#"spread["us.p99"][1]"#), Ok(&json!(2)));
        for wrong in [
            r#"rows["0"]"#,
            r#"rows["0]"#,
            "row",
            "rows[3]",
            "rows[n=2].m",
            "rows[n=9].m",
            "rows[n",
            "rows[n]",
            "rows..x",
            "rows[0].us[n=1]",
        ] {
            assert!(find(&data, wrong).is_err(), "{wrong}");
        }
    }
}
