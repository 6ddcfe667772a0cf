//! The report: one page with every experiment of the papers, ours beside theirs, and the data as
//! comma-separated values.
//!
//! - `data`: the papers' series and our data files
//! - `plot`, `html`: drawings, tables, the page
//! - `section`: what each experiment has
//! - `standings`: KCUC beside the other models, COPS beside Linux
//! - `chains`, `models`, `priority`, `costs`, `peers`: the experiments
//! - `open_loop`: the open loop of `peers`

mod chains;
mod costs;
mod data;
mod html;
mod models;
mod open_loop;
mod peers;
mod plot;
mod priority;
mod section;
mod standings;

use std::path::Path;

use crate::error::Outcome;

use data::{Material, csv};
use section::Section;

/// The page and the files beside it.
#[derive(Debug)]
pub struct Page {
    pub html: String,
    /// Names and contents.
    pub csv: Vec<(String, String)>,
    /// Names of data that do not exist.
    pub missing: Vec<String>,
}

/// Makes the page of a repository's data.
///
/// # Errors
/// If the data cannot be read.
pub fn make(root: &Path) -> Outcome<Page> {
    Ok(make_of(&Material::read(root)?))
}

fn sections(material: &Material) -> Vec<Section> {
    vec![
        chains::ring(material),
        chains::pipe(material),
        models::section(material),
        priority::section(material),
        costs::memory(material),
        costs::switch(material),
        costs::scale(material),
        peers::section(material),
    ]
}

const INTRODUCTION: &str = include_str!("introduction.html");

fn make_of(material: &Material) -> Page {
    let sections = sections(material);
    let links = sections
        .iter()
        .map(|section| format!("<a href=\"#{}\">{}</a>", section.id, html::escape(section.title)));
    let links: Vec<String> = links.collect();
    let mut body = format!("{INTRODUCTION}<nav>{}</nav>\n", html::list(&links));
    body.extend(sections.iter().map(Section::html));
    let mut files = vec![("papers.csv".to_owned(), csv(&material.papers))];
    let names: Vec<&str> =
        sections.iter().flat_map(|section| files_of(section.id)).copied().collect();
    for file in names.iter().flat_map(|name| material.files_of(name)) {
        files.push((format!("{}.csv", file.name.replace('/', "-")), csv(&file.rows)));
    }
    let links = files.iter().map(|(name, _)| format!("<a href=\"{name}\">{name}</a>"));
    let links: Vec<String> = links.collect();
    body += &format!(
        "<section id=\"data\">\n<h2>Data</h2>\n<p>The rows of every plot, and the papers' series \
         as they were published or read off their plots:</p>\n{}</section>\n",
        html::list(&links)
    );
    let missing = sections.iter().flat_map(|section| &section.missing);
    Page {
        html: html::page("COPS: the papers' experiments", &body),
        csv: files,
        missing: missing.map(|(name, _)| name.clone()).collect(),
    }
}

/// The experiments of which a section shows the data.
fn files_of(id: &'static str) -> &'static [&'static str] {
    match id {
        "priority" => &["priority-classes"],
        "memory" => &["memory", "idle-memory"],
        "switch" => &["switch", "costs"],
        "ring" => &["ring"],
        "pipe" => &["pipe"],
        "models" => &["models", "closed-models-icount"],
        "scale" => &["scale"],
        "peers" => &["peers"],
        _ => &[],
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
