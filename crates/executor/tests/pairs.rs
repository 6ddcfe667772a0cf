//! The table of pairs in `docs/book/transitions.md`: every pair of transitions is in it, with a
//! scene of `tests/loom` or the reason why the two cannot meet; every scene is in it; and the
//! figures are those recorded in `docs/results/loom.txt`. The crate's README has the totals.
//!
//! `COPS_RECORD_PAIRS=1` copies the recorded figures into the table instead of comparing them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/transitions.md");
const COUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/loom.txt");
const CORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/core");
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
const SCENES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/loom");

const TRANSITIONS: [&str; 13] = [
    "yield",
    "block",
    "exit",
    "fast wake",
    "slow wake",
    "drain",
    "set_priority",
    "inheritance",
    "steal",
    "cancel",
    "park",
    "spawn",
    "leave",
];

/// How many calls of a transition of the state word each file of the core has. A new one is a
/// reason to look at the table.
const CALLS: [(&str, usize); 5] = [
    ("fast_path.rs", 1),
    ("locked.rs", 6),
    ("requests.rs", 5),
    ("schedule.rs", 2),
    ("spawn.rs", 3),
];
const METHODS: [&str; 15] = [
    "wake",
    "wake_listed",
    "cancel",
    "set_base",
    "set_inherited",
    "take_from_inbox",
    "relevel",
    "migrate",
    "vacate",
    "occupy",
    "occupy_listed",
    "occupy_blocked",
    "settle",
    "begin",
    "block",
];

/// The rows of the table: cells without their blanks.
fn rows(chapter: &str) -> Vec<Vec<&str>> {
    let table = chapter.split("## The pairs").nth(1).expect("a heading");
    let table = table.split("\n## ").next().expect("a section");
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Scenes, as `module::name`.
fn scenes() -> BTreeSet<String> {
    let mut scenes = BTreeSet::new();
    for entry in fs::read_dir(SCENES).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path).unwrap();
        for test in source.split("#[test]\nfn ").skip(1) {
            scenes.insert(format!("{module}::{}", test.split('(').next().unwrap()));
        }
    }
    scenes
}

fn counts() -> BTreeMap<String, [u32; 2]> {
    let text = fs::read_to_string(COUNTS).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    words
        .map(|words| {
            (words[0].replace('/', "::"), [1, 2].map(|place| words[place].parse().unwrap()))
        })
        .collect()
}

#[test]
fn every_pair_has_a_scene_or_a_reason_and_every_scene_is_named() {
    let chapter = fs::read_to_string(CHAPTER).unwrap();
    let (scenes, mut named) = (scenes(), BTreeSet::new());
    let mut pairs = BTreeSet::new();
    for row in rows(&chapter) {
        assert_eq!(row.len(), 5, "{row:?}");
        let place = |name| TRANSITIONS.iter().position(|known| *known == name);
        let pair = place(row[0]).zip(place(row[1])).unwrap_or_else(|| panic!("{row:?}: unknown"));
        pairs.insert((pair.0.min(pair.1), pair.0.max(pair.1)));
        match row[2].strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
            Some(scene) => {
                assert!(scenes.contains(scene), "there is no scene {scene}");
                named.insert(scene.to_owned());
            }
            None => {
                let reason = row[2].strip_prefix("cannot meet: ").unwrap_or_default();
                assert!(reason.len() > 10, "{row:?}: neither a scene nor a reason");
            }
        }
    }
    let all =
        (0..TRANSITIONS.len()).flat_map(|one| (one..TRANSITIONS.len()).map(move |two| (one, two)));
    for (one, two) in all {
        assert!(
            pairs.contains(&(one, two)),
            "no row for {}, {}",
            TRANSITIONS[one],
            TRANSITIONS[two]
        );
    }
    assert_eq!(scenes, named, "scenes that the table does not name");
}

#[test]
fn figures_are_the_recorded_ones() {
    let chapter = fs::read_to_string(CHAPTER).unwrap();
    let counts = counts();
    let figures = |line: &str| {
        let scene = line.split('`').nth(1)?;
        let row = line.starts_with("| ") && line.split('|').count() == 7;
        row.then(|| counts.get(scene)).flatten().map(|[weakly, interleaved]| {
            let head = line.rsplitn(4, '|').last().unwrap();
            format!("{head}| {weakly} | {interleaved} |")
        })
    };
    let renewed: Vec<String> =
        chapter.lines().map(|line| figures(line).unwrap_or_else(|| line.to_owned())).collect();
    let renewed = renewed.join("\n") + "\n";
    if std::env::var_os("COPS_RECORD_PAIRS").is_some() {
        fs::write(CHAPTER, renewed).unwrap();
        return;
    }
    for scene in scenes() {
        assert!(counts.contains_key(&scene), "{scene} is not in docs/results/loom.txt");
    }
    assert!(chapter == renewed, "COPS_RECORD_PAIRS=1 cargo test -p cops-executor --test pairs");
}

#[test]
fn the_readme_has_as_many_scenes_and_pairs_as_there_are() {
    let chapter = fs::read_to_string(CHAPTER).unwrap();
    let pairs = |rows: &[Vec<&str>]| {
        rows.iter().map(|row| BTreeSet::from([row[0].to_owned(), row[1].to_owned()])).collect()
    };
    let rows = rows(&chapter);
    let all: BTreeSet<BTreeSet<String>> = pairs(&rows);
    let with_a_scene: Vec<_> = rows.iter().filter(|row| row[2].starts_with('`')).cloned().collect();
    let meet: BTreeSet<BTreeSet<String>> = pairs(&with_a_scene);
    let tests = |file: &str| {
        fs::read_to_string(format!("{TESTS}/{file}")).unwrap().matches("#[test]\nfn ").count()
    };
    // A line may be broken anywhere.
    let readme = fs::read_to_string(README).unwrap();
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        format!("| {} scenes; {} of {} pairs of", scenes().len(), meet.len(), all.len()),
        format!("`tests/loom_sync.rs` adds {} scenes", tests("loom_sync.rs")),
        format!("`tests/loom_idle.rs` {} of parked workers", tests("loom_idle.rs")),
    ] {
        assert!(readme.contains(&expected), "README.md does not say {expected:?}");
    }
}

#[test]
fn no_transition_is_called_from_a_new_place() {
    for entry in fs::read_dir(CORE).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path).unwrap();
        let calls: usize =
            METHODS.iter().map(|name| source.matches(&format!(".state.{name}(")).count()).sum();
        let expected =
            CALLS.iter().find(|(known, _)| *known == file).map_or(0, |(_, calls)| *calls);
        assert_eq!(
            calls, expected,
            "{file}: is the pair with the new caller in docs/book/transitions.md?"
        );
    }
}
