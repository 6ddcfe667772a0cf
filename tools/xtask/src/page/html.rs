//! The parts of a page: text, tables, the style sheet.

use std::fmt::Write as _;

/// Text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table with more rows is folded until the reader opens it.
const ROWS_UNFOLDED: usize = 24;

/// A table of which the first column is text and the others are numbers. It scrolls by itself, so
/// that a phone shows the rest of the page in its width.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let html = unfolded(heading, rows);
    if rows.len() <= ROWS_UNFOLDED {
        return html;
    }
    let count = rows.len();
    format!("<details><summary>Table of {count} rows</summary>\n{html}</details>\n")
}

fn unfolded(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = "<div class=\"table\"><table><thead><tr>".to_owned();
    for cell in heading {
        let _ = write!(html, "<th>{}</th>", escape(cell));
    }
    html += "</tr></thead><tbody>\n";
    for row in rows {
        html += "<tr>";
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// A list of sentences, which may contain elements; nothing if there are none.
pub fn list(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items: String = sentences.iter().map(|item| format!("<li>{item}</li>\n")).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// A whole page.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let html = table(&["a<b"], &[vec!["\"&\"".into()]]);
        assert!(html.contains("<th>a&lt;b</th>") && html.contains("<td>&quot;&amp;&quot;</td>"));
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn a_long_table_is_folded() {
        let rows = vec![vec!["1".to_owned()]; ROWS_UNFOLDED + 1];
        assert!(table(&["n"], &rows).contains("<summary>Table of 25 rows</summary>"));
        assert!(!table(&["n"], &rows[1..]).contains("<details>"));
    }

    #[test]
    fn a_page_refers_to_nothing_outside() {
        let html = page("T", "<p>x</p>");
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("<p>x</p>"));
        for word in ["src=", "url(", "@import", "<link", "<script"] {
            assert!(!html.contains(word), "{word}");
        }
    }
}
