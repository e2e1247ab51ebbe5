# The parts of a script, one after the other. Sourced:
#
#     part TITLE COMMAND…    runs a command; the parts behind it run also after it failed, so that one run shows everything
#     finish SENTENCE        says what took longest, and what failed; the sentence stands where nothing did

failed=()
took=()

part() {
    local title="$1" began=$SECONDS
    shift
    printf '\n== %s\n   %s\n' "$title" "$*"
    "$@" </dev/null || failed+=("$title")
    took+=("$((SECONDS - began)) $title")
}

finish() {
    printf '\nWhat took longest of %s s:\n' "$SECONDS"
    printf '%s\n' "${took[@]}" | sort -rn | head -n 8 | while read -r seconds title; do
        printf '%6s s  %s\n' "$seconds" "$title"
    done
    echo
    if [ "${#failed[@]}" -gt 0 ]; then
        printf 'FAILED: %s\n' "${failed[@]}"
        exit 1
    fi
    echo "$1"
}
