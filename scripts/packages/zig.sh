# shellcheck shell=bash
# Sourced. `need_zig` puts zig and cargo-zigbuild in PATH; what is missing is installed into .cache/zig, in the pinned versions.

ZIG=(ziglang==0.17.0 cargo-zigbuild==0.24.0)

need_zig() {
    type -P cargo-zigbuild zig >/dev/null && return
    if [ ! -x .cache/zig/bin/zig ]; then
        echo "zig: ${ZIG[*]}, into .cache/zig"
        python3 -m venv .cache/zig
        .cache/zig/bin/pip install --quiet --disable-pip-version-check "${ZIG[@]}"
        # cargo-zigbuild looks for a program of this name.
        printf '#!/bin/sh\nexec "%s" -m ziglang "$@"\n' "$PWD/.cache/zig/bin/python" >.cache/zig/bin/zig
        chmod +x .cache/zig/bin/zig
    fi
    export PATH="$PWD/.cache/zig/bin:$PATH"
}
