//! Replays what the fuzzer found worth keeping (`fuzz/corpus/history`), with the compiler
//! that builds everything else.

mod common;
mod history;

use std::path::Path;
use std::{env, fs};

use history::{history_of, play};

/// Or of another folder, to see again what the fuzzer complained about:
/// `COPS_CORPUS=fuzz/artifacts/history`.
#[test]
fn the_fuzzers_histories_hold() {
    let folder = env::var("COPS_CORPUS").unwrap_or("fuzz/corpus/history".to_owned());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    for file in files.iter().step_by(if cfg!(miri) { 40 } else { 1 }) {
        println!("{}", file.display());
        play(history_of(&fs::read(file).unwrap()));
    }
}
