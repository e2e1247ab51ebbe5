# shellcheck shell=bash disable=SC2034,SC2154
# What scripts/setup.sh installed into .cache comes first in PATH. The Makefile gives this file to every bash that it starts
# (BASH_ENV). In a shell of your own, which may be zsh: source scripts/environment.sh
tidegate_cache="$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." >/dev/null && pwd)/.cache"

for tidegate_bin in redis/bin node/bin python/bin rust/bin cargo/bin; do
    tidegate_bin="$tidegate_cache/$tidegate_bin"
    if [ -d "$tidegate_bin" ]; then
        case ":$PATH:" in
            *":$tidegate_bin:"*) ;;
            *) PATH="$tidegate_bin:$PATH" ;;
        esac
    fi
done
export PATH

# Only a Rust of the repository's own lives here: one that was there before keeps its folders.
if [ -x "$tidegate_cache/cargo/bin/rustup" ]; then
    export RUSTUP_HOME="$tidegate_cache/rustup" CARGO_HOME="$tidegate_cache/cargo"
fi
unset tidegate_cache tidegate_bin
