//! Figures in prose: every measured number in a README or a chapter is generated from data under
//! docs/results.
//!
//! A figure looks like this, on one or several lines, in prose or in the cell of a table:
//!
//! ```text
//! <!-- figures: {closed-wall-1:rows[0].throughput_rps|0} answers a second -->
//! 20,200 answers a second<!-- end -->
//! ```
//!
//! The comment contains a template; the text between it and `<!-- end -->` is generated. `./cops
//! report figures` writes it. `./cops test --only docs` fails if that would change anything, if a
//! template names data that do not exist, or if a number with a unit is anywhere else (see
//! [`check`]).
//!
//! - [`template`]: markers, placeholders
//! - [`path`]: paths into a data file, in placeholders
//! - [`mod@format`]: formatting of numbers
//! - [`check`]: numbers that are not generated
//! - [`sources`]: the data files, and the command that makes each
//! - [`faults`]: data files that must not be checked in
//! - [`plots`]: plots that are checked in beside their data

mod check;
mod faults;
mod format;
mod path;
pub mod plots;
pub mod sources;
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Because, Failure, Outcome};
use crate::repository::{files_below, has_extension, markdown_files, read};

use crate::workspace::RESULTS;

use template::render;

/// Data files by name: the path below [`RESULTS`] without `.json`.
#[derive(Debug, Default)]
pub struct Data {
    files: BTreeMap<String, Value>,
}

impl Data {
    /// Reads every data file.
    pub fn read(root: &Path) -> Outcome<Self> {
        let mut data = Self::default();
        let folder = root.join(RESULTS);
        for file in files_below(&folder, |path| has_extension(path, "json"))? {
            let text =
                std::fs::read(&file).because(|| format!("cannot read {}", file.display()))?;
            let value = serde_json::from_slice(&text)
                .because(|| format!("{} is no JSON", file.display()))?;
            let name = file.strip_prefix(&folder).unwrap_or(&file).with_extension("");
            data.files.insert(name.to_string_lossy().into_owned(), value);
        }
        Ok(data)
    }

    #[cfg(test)]
    fn of(name: &str, value: Value) -> Self {
        Self { files: BTreeMap::from([(name.to_owned(), value)]) }
    }

    /// The data of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.files.get(name)
    }

    /// Every name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}

/// Documents at the root of the repository.
const ROOT_DOCUMENTS: [&str; 4] = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];

/// The documents in which figures are checked: those of the root and of the packages, the book.
fn documents(root: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> =
        ROOT_DOCUMENTS.iter().map(|name| root.join(name)).filter(|path| path.exists()).collect();
    let crates = root.join("crates");
    for entry in
        std::fs::read_dir(&crates).because(|| format!("cannot list {}", crates.display()))?
    {
        let readme =
            entry.because(|| format!("cannot list {}", crates.display()))?.path().join("README.md");
        if readme.exists() {
            found.push(readme);
        }
    }
    found.extend(markdown_files(&root.join("docs/book"))?);
    found.sort();
    Ok(found)
}

/// A document as it is, and as it should be.
#[derive(Debug)]
pub struct Document {
    pub path: PathBuf,
    /// Relative to the root.
    pub name: String,
    pub text: String,
    pub rendered: String,
}

/// The number of documents, and the faults of them and of the data.
pub fn judge(root: &Path) -> Outcome<(usize, Vec<String>)> {
    let data = Data::read(root)?;
    let documents = render_all(root, &data)?;
    let mut wrong = check::judge(root, &documents)?;
    wrong.extend(faults::judge(&data));
    Ok((documents.len(), wrong))
}

/// Renders all documents. An error names every placeholder without data.
pub fn render_all(root: &Path, data: &Data) -> Outcome<Vec<Document>> {
    let (mut rendered, mut wrong) = (Vec::new(), Vec::new());
    for path in documents(root)? {
        let (name, text) = read(root, &path)?;
        match render(&text, data) {
            Ok(new) => rendered.push(Document { path, name, text, rendered: new }),
            Err(faults) => wrong.extend(faults.into_iter().map(|fault| format!("{name}:{fault}"))),
        }
    }
    if wrong.is_empty() { Ok(rendered) } else { Err(Failure::new(wrong.join("\n"))) }
}
