//! Every generated file is the one that the sources make.

use tidegate_tests::generated::{files, read};

#[test]
fn generated_files_are_those_that_the_sources_make() {
    for (file, text) in files() {
        assert!(read(&file) == text, "{file} differs from its sources: `make generate` writes it");
    }
}
