//! Writes the generated files of the repository.

use tidegate_tests::generated::{files, path};

fn main() -> std::io::Result<()> {
    files().into_iter().try_for_each(|(file, text)| std::fs::write(path(&file), text))
}
