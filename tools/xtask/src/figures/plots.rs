//! Plots that are checked in beside the data that they show. The load generator draws them again,
//! so they are as current as the figures in the documents.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::host;
use crate::error::{Because, Failure, Outcome};
use crate::process::capture;
use crate::terminal::Progress;
use crate::workspace::{RESULTS, Workspace};

/// The data, and the folder of their plots, both below [`RESULTS`].
const PLOTTED: [(&str, &str); 1] = [("run/run-64.json", "run")];
/// The plots of data.
const PLOTS: [&str; 2] = ["latency.svg", "throughput.svg"];

/// A plot that is checked in, as the data give it.
#[derive(Debug)]
pub struct Plot {
    pub path: PathBuf,
    /// Relative to the root.
    pub name: String,
    pub drawn: Vec<u8>,
}

impl Plot {
    /// Whether what is checked in is not this.
    pub fn is_stale(&self) -> bool {
        std::fs::read(&self.path).ok().as_ref() != Some(&self.drawn)
    }
}

/// Draws all plots.
///
/// # Errors
/// If the load generator cannot be built, or cannot read the data.
pub fn draw_all(workspace: &Workspace) -> Outcome<Vec<Plot>> {
    let program = host::load_generator(workspace, Progress::Transient)?;
    let scratch = workspace.scratch()?;
    draw_by(&workspace.root, &scratch.file("plots"), |data, folder| {
        let mut command = Command::new(&program);
        command.arg("--replot").arg(data).arg("--plots").arg(folder);
        let captured = capture(&mut command, None, |_| ())?;
        match captured.succeeded() {
            true => Ok(()),
            false => Err(Failure::new(format!("not drawn: {}", captured.everything().trim()))),
        }
    })
}

/// `draw` draws the plots of a data file into a folder.
fn draw_by(
    root: &Path,
    scratch: &Path,
    draw: impl Fn(&Path, &Path) -> Outcome<()>,
) -> Outcome<Vec<Plot>> {
    let mut plots = Vec::new();
    for (data, folder) in PLOTTED {
        let drawn_in = scratch.join(folder);
        draw(&root.join(RESULTS).join(data), &drawn_in)?;
        for plot in PLOTS {
            let file = drawn_in.join(plot);
            let drawn =
                std::fs::read(&file).because(|| format!("cannot read {}", file.display()))?;
            let name = format!("{RESULTS}/{folder}/{plot}");
            plots.push(Plot { path: root.join(&name), name, drawn });
        }
    }
    Ok(plots)
}

/// The plots that are not what their data give.
pub fn judge(plots: &[Plot]) -> Vec<String> {
    let stale = plots.iter().filter(|plot| plot.is_stale());
    stale.map(|plot| format!("{}: stale; ./cops report figures draws it anew", plot.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::write_if_changed;

    #[test]
    fn a_plot_of_other_data_is_stale() {
        let root = std::env::temp_dir().join(format!("xtask-plots-{}", std::process::id()));
        let results = root.join(RESULTS);
        // A "plot" is a copy of the data.
        let draw = |data: &Path, folder: &Path| {
            for plot in PLOTS {
                write_if_changed(&folder.join(plot), &std::fs::read(data).unwrap())?;
            }
            Ok(())
        };
        let stale = || judge(&draw_by(&root, &root.join("scratch"), draw).unwrap());
        write_if_changed(&results.join("run/run-64.json"), b"one").unwrap();
        assert_eq!(stale().len(), 2, "there is none");
        draw(&results.join("run/run-64.json"), &results.join("run")).unwrap();
        assert_eq!(stale(), [""; 0]);
        write_if_changed(&results.join("run/run-64.json"), b"two").unwrap();
        let message =
            "docs/results/run/latency.svg: stale; ./cops report figures draws it anew".to_owned();
        assert_eq!((stale().len(), &stale()[0]), (2, &message));
        std::fs::remove_dir_all(root).unwrap();
    }
}
