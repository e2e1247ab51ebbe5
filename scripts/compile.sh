# Compiles the tests of Rust, the addon and the module, and installs the module. Sourced behind parts.sh:
#
#     compile      does it, in parts
#     "${rust[@]}" what cargo is to be told afterwards, so that it finds everything compiled
#     "$target"    what everything is compiled for
#     "$library"   the module

# The tools of the package's own environment first.
export PATH="$PWD/.cache/venv/bin:$PATH"

# One profile, one target directory and one set of features for everything, so that cargo compiles the core and its dependencies
# once: napi names the target, and so does this. Benchmarks are compiled by `make check` and by `make bench`.
target="$(rustc -vV | sed -n 's/^host: //p')"
selected=(--workspace --exclude tidegate-benches)
rust=(--locked --target "$target" "${selected[@]}")

library="${CARGO_TARGET_DIR:-target}/$target/debug/lib_tidegate.so"
[ "$(uname)" != Darwin ] || library="${library%.so}.dylib"

# A wheel around the library that was compiled with the tests. maturin would compile it again, with fewer features of the core;
# the wheels that maturin makes are tried by `make test-all`.
wheel_of_the_library() {
    local wheels=.cache/wheels
    rm -rf "$wheels" && mkdir -p "$wheels/content" &&
        maturin pep517 write-dist-info --interpreter "$(command -v python)" --metadata-directory "$wheels/content" &&
        cp -r bindings-python/python/tidegate "$wheels/content" &&
        cp "$library" "$wheels/content/tidegate/_tidegate.abi3.so" &&
        python -m wheel pack --dest-dir "$wheels" "$wheels/content" &&
        python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
}

compile() {
    part "Compilation: the tests of Rust, the addon, the module" \
        npm run --silent build:dev -- "${selected[@]}" --lib --bins --tests --examples
    part "Node: the package, and its types" npm run --silent build:lib
    part "Python: the module" wheel_of_the_library
}
