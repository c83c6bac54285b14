//! The repository keeps its own rules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::stage::root;

const MOST_LINES: usize = 600;

/// What no source may say, and why.
const BANNED: [(&str, &str); 6] = [
    ("exactly-once delivery", "delivery is at least once; the effect is exactly once"),
    ("FIXME", "a known fault is mended or written down where users see it"),
    ("XXX", "say what is meant"),
    ("#[ignore]", "a test that does not run proves nothing"),
    ("/home/", "paths of one machine"),
    ("/root/", "paths of one machine"),
];

/// Rust sources of the repository, generated ones left out.
fn sources() -> Vec<PathBuf> {
    let mut sources = Vec::new();
    let mut folders: Vec<_> =
        ["host", "sdk", "plugins", "xtask", "tests", "bench"].map(|folder| root().join(folder)).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(path);
            }
        }
    }
    assert!(sources.len() > 50, "the sources are somewhere else");
    sources
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn no_file_is_too_long_to_be_read() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|path| (read(&path).lines().count(), path))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "longer than {MOST_LINES} lines, to be split: {long:?}");
}

#[test]
fn no_source_says_what_none_may_say() {
    let own = root().join("tests/suite/tidy.rs");
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|path| *path != own) {
        let text = read(&path);
        for (banned, why) in BANNED {
            if let Some(line) = text.lines().position(|line| line.contains(banned)) {
                found.push(format!("{}:{}: {banned:?}: {why}", path.display(), line + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// `tests/faults.md` says which test shows that a known fault of other systems is none of ours.
#[test]
fn every_fault_that_is_claimed_has_its_test() {
    let functions: BTreeSet<String> = sources().iter().flat_map(|path| functions(&read(path))).collect();
    let list = read(&root().join("tests/faults.md"));
    let mut claims = 0;
    for line in list.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [row, tests] = cells[..] else { panic!("a line of two cells, not {line:?}") };
        if row.len() != 3 || !row.ends_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        for test in tests.split(',').map(|test| test.trim().trim_matches('`')) {
            assert!(functions.contains(test), "{row} is claimed by {test:?}, and there is no such test");
            assert!(test.contains(&row.to_lowercase()), "{test:?} does not name {row}");
            claims += 1;
        }
    }
    assert!(claims > 0, "the list is empty");
}

/// Names of the functions in a source.
fn functions(source: &str) -> Vec<String> {
    let after_fn = source.split("fn ").skip(1);
    after_fn.filter_map(|rest| rest.split(['(', '<', ' ', '\n']).next()).map(str::to_owned).collect()
}
