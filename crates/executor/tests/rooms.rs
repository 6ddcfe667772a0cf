//! The rooms of the crate use each other in one direction: what the crate's documentation says
//! under "Rooms".

use std::fs;
use std::path::{Path, PathBuf};

/// Each may use those before it.
const ROOMS: [&str; 6] = ["core", "image", "front", "sync", "time", "host"];
/// What may not, though the other comes before it.
const APART: [(&str, &str); 1] = [("time", "sync")];

/// The Rust files below a folder, but those of unit tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "rs")
            && !path.to_string_lossy().contains("_tests")
        {
            found.push(path);
        }
    }
    found
}

/// The rooms that a file of `room` names and must not.
fn wrong(room: &str, text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let place = |name: &str| ROOMS.iter().position(|one| *one == name);
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|after| {
            after.split(|end: char| !end.is_alphanumeric() && end != '_').next().unwrap_or_default()
        })
        .filter(|other| place(other) > place(room) || APART.contains(&(room, other)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn rooms_use_only_those_before_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for room in ROOMS {
        let files = files(&source.join(room));
        assert!(!files.is_empty(), "there is no room {room}");
        for file in files {
            let wrong = wrong(room, &fs::read_to_string(&file).unwrap());
            assert!(wrong.is_empty(), "{}: {wrong:?} come after {room}", file.display());
        }
    }
}

#[test]
fn a_wrong_direction_is_found() {
    assert_eq!(wrong("front", "use crate::sync::Event;"), ["sync"]);
    assert_eq!(
        wrong("time", "fn f() { crate::sync::signal(1); crate::host::timers() }"),
        ["sync", "host"]
    );
    assert!(wrong("host", "use crate::{front, time};").is_empty());
    assert!(wrong("core", "//! [`spawn`](crate::front::spawn)").is_empty());
}
