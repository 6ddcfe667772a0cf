//! Markers and placeholders: renders a document with its figures.
//!
//! A placeholder is `{FILE:PATH|FORM}`, `{FILE:PATH - NUMBER|FORM}`, or `{FILE:PATH /
//! FILE:PATH|FORM}` for a ratio (the second file name may be omitted if it is the same).
//! `{FILE:config.commit}` is text.
//!
//! A marker `figures when measured:` is of files and rows that need not exist: without them, the
//! document says how to make them.

use serde_json::Value;

use super::{Data, format, path};

const BEGIN: &str = "<!-- figures";
/// What follows in a marker of data that exist, and of data that need not.
const ALWAYS: &str = ":";
const WHEN_MEASURED: &str = " when measured:";
const CLOSE: &str = "-->";
const END: &str = "<!-- end -->";

/// A part of a document.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text that is not generated.
    Prose(&'a str),
    /// A template, with the whole comment that contains it and the text that was generated from it.
    Figures { marker: &'a str, template: &'a str, generated: &'a str, is_optional: bool },
}

/// The parts of a document, each with its first line. An error names the line of a marker without
/// an end.
pub fn parts(text: &str) -> Result<Vec<(usize, Part<'_>)>, String> {
    let mut parts = Vec::new();
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let mut at = 0;
    while let Some(begin) = text[at..].find(BEGIN).map(|place| at + place) {
        parts.push((line_of(at), Part::Prose(&text[at..begin])));
        let missing = |what: &str| format!("{}: this marker has no {what}", line_of(begin));
        let behind = &text[begin + BEGIN.len()..];
        let kinds = [(ALWAYS, false), (WHEN_MEASURED, true)];
        let kind = kinds.into_iter().find(|(kind, _)| behind.starts_with(kind));
        let (kind, is_optional) = kind.ok_or_else(|| missing(ALWAYS))?;
        let inside = begin + BEGIN.len() + kind.len();
        let close = inside + text[inside..].find(CLOSE).ok_or_else(|| missing(CLOSE))?;
        let generated = close + CLOSE.len();
        let end = generated + text[generated..].find(END).ok_or_else(|| missing(END))?;
        if text[generated..end].contains(BEGIN) {
            return Err(missing(END));
        }
        let template = &text[inside..close];
        // A template of several lines begins on a line of its own; one within a line has a blank at
        // each side.
        let template = template.strip_prefix(' ').unwrap_or(template);
        let template = template.strip_suffix(' ').unwrap_or(template);
        let marker = &text[begin..generated];
        parts.push((
            line_of(begin),
            Part::Figures { marker, template, generated: &text[generated..end], is_optional },
        ));
        at = end + END.len();
    }
    parts.push((line_of(at), Part::Prose(&text[at..])));
    Ok(parts)
}

/// The document with its figures, or all errors in its templates, as `LINE: what`.
pub fn render(text: &str, data: &Data) -> Result<String, Vec<String>> {
    let mut rendered = String::new();
    let mut wrong = Vec::new();
    for (line, part) in parts(text).map_err(|fault| vec![fault])? {
        match part {
            Part::Prose(prose) => rendered.push_str(prose),
            Part::Figures { marker, template, is_optional, .. } => {
                rendered.push_str(marker);
                let filled = fill(template, data);
                match filled.or_else(|faults| not_measured(template, is_optional).ok_or(faults)) {
                    Ok(filled) => rendered.push_str(&filled),
                    Err(faults) => {
                        wrong.extend(faults.into_iter().map(|fault| format!("{line}: {fault}")))
                    }
                }
                rendered.push_str(END);
            }
        }
    }
    if wrong.is_empty() { Ok(rendered) } else { Err(wrong) }
}

/// What stands in place of figures of which data are missing that need not exist.
fn not_measured(template: &str, is_optional: bool) -> Option<String> {
    let (file, _) = template.split_once('{')?.1.split_once(':').filter(|_| is_optional)?;
    let newline = if template.starts_with('\n') { "\n" } else { "" };
    Some(format!("{newline}Not measured yet: `./cops report measure {file}`.{newline}"))
}

fn fill(template: &str, data: &Data) -> Result<String, Vec<String>> {
    let (mut filled, mut wrong) = (String::new(), Vec::new());
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((placeholder, after)) = behind.split_once('}') else {
            return Err(vec!["a { without a }".to_owned()]);
        };
        match value(placeholder, data) {
            Ok(text) => filled.push_str(&text),
            Err(fault) => wrong.push(format!("{{{placeholder}}}: {fault}")),
        }
        rest = after;
    }
    filled.push_str(rest);
    if wrong.is_empty() { Ok(filled) } else { Err(wrong) }
}

fn value(placeholder: &str, data: &Data) -> Result<String, String> {
    let (what, form) = placeholder.split_once('|').unwrap_or((placeholder, ""));
    let mut file = "";
    let mut numbers = Vec::new();
    for term in what.split(" / ") {
        let (named, path) = term.split_once(':').unwrap_or((file, term));
        file = named.trim();
        let document =
            data.get(file).ok_or_else(|| format!("there is no docs/results/{file}.json"))?;
        let (path, less) = match path.split_once(" - ") {
            Some((path, less)) => {
                (path, less.trim().parse::<f64>().map_err(|_| format!("{less:?} is no number"))?)
            }
            None => (path, 0.0),
        };
        let found = path::find(document, path)?;
        numbers.push(match found.as_f64() {
            Some(number) if less != 0.0 => Value::from(number - less),
            _ => found.clone(),
        });
    }
    match numbers.as_slice() {
        [one] => format::format(one, form),
        [a, b] => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) if b != 0.0 => format::format(&Value::from(a / b), form),
            _ => Err("a ratio needs two numbers".to_owned()),
        },
        _ => Err("a placeholder has at most one /".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn data() -> Data {
        Data::of("run/a", json!({"rows": [{"n": 4, "us": 1950.2}, {"n": 8, "us": 975.1}]}))
    }

    #[test]
    fn figures_are_filled_in_and_prose_is_left_alone() {
        let text = "p50 <!-- figures: {run/a:rows[n=4].us|us} at most -->?<!-- end -->, {untouched}\n\
            <!-- figures:\n| {run/a:rows[n=4].us / rows[n=8].us|1} |\n-->\nold\n<!-- end -->\n";
        let expected = "p50 <!-- figures: {run/a:rows[n=4].us|us} at most -->1.95 ms at most<!-- end -->, {untouched}\n\
            <!-- figures:\n| {run/a:rows[n=4].us / rows[n=8].us|1} |\n-->\n| 2.0 |\n<!-- end -->\n";
        let rendered = render(text, &data()).unwrap();
        assert_eq!(rendered, expected);
        assert_eq!(render(&rendered, &data()).unwrap(), expected, "a second time changes nothing");
    }

    #[test]
    fn numbers_can_be_reduced() {
        let text = "<!-- figures: {run/a:rows[n=8].us - 75.1|0} -->?<!-- end -->";
        assert!(render(text, &data()).unwrap().ends_with("-->900<!-- end -->"));
    }

    #[test]
    fn a_figure_without_data_is_named_with_its_line() {
        let text =
            "\n<!-- figures: {run/b:rows[0].us|us} {run/a:rows[n=5].us|us} -->1 µs<!-- end -->";
        let wrong = render(text, &data()).unwrap_err();
        assert_eq!(wrong.len(), 2);
        assert!(
            wrong[0].starts_with("2: ") && wrong[0].contains("docs/results/run/b.json"),
            "{}",
            wrong[0]
        );
        assert!(wrong[1].contains("no element"), "{}", wrong[1]);
    }

    #[test]
    fn data_that_need_not_exist_are_named() {
        let of = |file: &str| {
            format!("<!-- figures when measured:\n| {{{file}:rows[n=4].us|us}} |\n-->x<!-- end -->")
        };
        assert!(render(&of("run/a"), &data()).unwrap().ends_with("-->\n| 1.95 ms |\n<!-- end -->"));
        let rendered = render(&of("run/b"), &data()).unwrap();
        let expected = "-->\nNot measured yet: `./cops report measure run/b`.\n<!-- end -->";
        assert!(rendered.ends_with(expected), "{rendered}");
        // A file may lack a row.
        let rendered = render(&of("run/a").replace("n=4", "n=5"), &data()).unwrap();
        assert!(rendered.contains("report measure run/a"), "{rendered}");
    }

    #[test]
    fn markers_must_end() {
        for text in [
            "<!-- figures: {a",
            "<!-- figures: x -->",
            "<!-- figures of: x -->y<!-- end -->",
            "a\n<!-- figures: x --> <!-- figures: y -->z<!-- end -->",
        ] {
            assert!(render(text, &data()).is_err(), "{text}");
        }
    }
}
