//! Whoever looks an item of the library up finds an example that runs: this is what keeps it so. That they run is seen by
//! the documentation tests.

use std::fs;
use std::path::Path;

/// Lines that begin an item which others can name.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let kinds = ["fn", "struct", "enum", "trait", "type", "const"];
    line.strip_prefix("pub ")
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|kind| kinds.contains(&kind))
}

#[test]
fn every_public_item_has_an_example() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut items, mut without) = (0, Vec::new());
    let mut paths = vec![src];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let files = fs::read_dir(path).expect("the sources are there");
            paths.extend(files.map(|file| file.expect("an entry").path()));
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_item(line)) {
            items += 1;
            let above = lines.iter().take(at).rev().map(|line| line.trim_start());
            let mut docs =
                above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
            if !docs.any(|line| line == "/// ```") {
                without.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(items > 90, "only {items} items were found");
    assert!(without.is_empty(), "no example:\n{}", without.join("\n"));
}
