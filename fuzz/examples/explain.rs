//! Says in words what an input of the target `folder` does: `cargo run --example explain FILE`, from the folder `fuzz`.

use libfuzzer_sys as _;

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(path)?;
        let Some((first, mut edits)) = data.split_first() else {
            continue;
        };
        let mut files = riverlog_fuzz::image(first & 1 == 1).files.clone();
        println!("{} folder", ["killed", "closed"][usize::from(first & 1)]);
        for _ in 0..8 {
            let before = files.clone();
            if riverlog_fuzz::edit(&mut files, &mut edits).is_none() {
                break;
            }
            for (path, bytes) in &before {
                let after = files.get(path).map(Vec::as_slice).unwrap_or_default();
                let at = bytes.iter().zip(after).position(|(a, b)| a != b);
                if at.is_some() || bytes.len() != after.len() {
                    let at = at.unwrap_or(bytes.len().min(after.len()));
                    println!(
                        "  {path}: {} bytes, now {}, from {at} on",
                        bytes.len(),
                        after.len()
                    );
                }
            }
        }
    }
    Ok(())
}
