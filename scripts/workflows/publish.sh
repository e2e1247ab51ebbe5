#!/usr/bin/env bash
# Publishes dist/ from the release workflow. PyPI has an action of its own.
#
#     scripts/workflows/publish.sh crates   what `make dist` packaged, with the token of crates.io's trusted publishing
#     scripts/workflows/publish.sh npm      the packages of platforms first, since the main one depends on them
#
# What is already published is left alone, so that a release that broke off is run again.
set -euo pipefail
cd "$(dirname "$0")/../.."

version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
if [ "${GITHUB_REF_NAME:-}" != "v$version" ]; then
    echo "publish: the tag is «${GITHUB_REF_NAME:-}», and the version is $version; only the tag v$version publishes it" >&2
    exit 1
fi

case "${1:-}" in
    crates)
        named=()
        for crate in dist/crates/*.crate; do
            name="$(basename "$crate" "-$version.crate")"
            if cargo info --registry crates-io "$name@$version" >/dev/null 2>&1; then
                echo "publish: $name $version is already there"
            else
                named+=(--package "$name")
            fi
        done
        [ "${#named[@]}" -eq 0 ] || cargo publish --locked "${named[@]}"
        ;;
    npm)
        # `npm install tidegate` takes what is tagged latest, which no candidate of a release is.
        tag=latest
        [[ "$version" != *-* ]] || tag=next
        main=
        for tarball in dist/npm/*.tgz; do
            case "$(basename "$tarball")" in
                "tidegate-$version.tgz") main="$tarball" ;;
                *) platforms+=("$tarball") ;;
            esac
        done
        for tarball in "${platforms[@]}" "$main"; do
            name="$(basename "$tarball" "-$version.tgz")"
            if npm view "$name@$version" version >/dev/null 2>&1; then
                echo "publish: $name $version is already there"
            else
                npm publish "./$tarball" --tag "$tag" --provenance --access public
            fi
        done
        ;;
    *)
        echo "publish: name crates or npm" >&2
        exit 1
        ;;
esac
