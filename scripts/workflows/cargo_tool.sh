# A tool of cargo in a pinned version, for one script. Sourced; installs it into .cache and puts it into PATH:
#
#     use_cargo_tool cargo-cyclonedx 0.5.9

use_cargo_tool() {
    local name="$1" version="$2" folder="$PWD/.cache/$1"
    if [ "$(cat "$folder/installed" 2>/dev/null)" != "$version" ]; then
        echo "$name $version, into .cache"
        cargo install --quiet --locked --root "$folder" "$name@$version"
        printf '%s\n' "$version" >"$folder/installed"
    fi
    export PATH="$folder/bin:$PATH"
}
