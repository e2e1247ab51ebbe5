#!/usr/bin/env bash
# Lists the crates inside each package, as CycloneDX, in dist/sbom. A wheel also contains its own list.
set -euo pipefail
cd "$(dirname "$0")/../.."

. scripts/workflows/cargo_tool.sh
use_cargo_tool cargo-cyclonedx 0.5.9
mkdir -p dist/sbom
# It writes beside each manifest, and knows no other place.
cargo cyclonedx --quiet --format json --override-filename tidegate-sbom
for file in */tidegate-sbom.json tests/rust/tidegate-sbom.json; do
    case "$file" in
        # These are not published.
        benches/* | tests/*) rm "$file" ;;
        *) mv "$file" "dist/sbom/${file%%/*}.cyclonedx.json" ;;
    esac
done
ls -l dist/sbom
