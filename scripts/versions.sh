# The tests with the oldest and the newest supported versions, as parts. Sourced behind parts.sh, when both packages are built:
#
#     versions

versions() {
    local language end
    for language in node python; do
        for end in oldest newest; do
            part "Supported versions: the $end of $language" python3 scripts/versions.py "$language" "$end"
        done
    done
}
