# The parts of a script, one after the other. Sourced:
#
#     part TITLE COMMAND…    runs a command; the parts behind it run also after it failed, so that one run shows everything
#     beside TITLE COMMAND…  begins a command, which runs beside the next parts
#     rejoin                 waits for the command that was begun, and shows what it said
#     finish SENTENCE        says what took longest, and what failed with its last lines; the sentence stands where nothing did

failed=()
took=()
said="$(mktemp -d)"
aside_process=
trap '[ -z "$aside_process" ] || kill -- "-$aside_process"; rm -rf "$said"' EXIT

part() {
    local title="$1" began=$SECONDS
    shift
    printf '\n== %s\n   %s\n' "$title" "$*"
    exec 3> >(tee "$said/$title")
    local reader=$!
    "$@" </dev/null >&3 2>&1 3>&- || failed+=("$title")
    exec 3>&-
    # A process that the command left behind may hold the pipe open, so the wait for its reader is short.
    for _ in {1..20}; do
        kill -0 "$reader" 2>/dev/null || break
        sleep 0.05
    done
    took+=("$((SECONDS - began)) $title")
}

beside() {
    aside="$1" aside_began=$SECONDS
    shift
    printf '\n== %s\n   %s\n   beside what follows; its output comes behind that\n' "$aside" "$*"
    # With job control it has a process group of its own, and does not ignore Ctrl-C, which tests send to themselves.
    set -m
    "$@" </dev/null >"$said/$aside" 2>&1 &
    aside_process=$!
    set +m
}

rejoin() {
    local status=0
    wait "$aside_process" || status=$?
    aside_process=
    printf '\n== %s\n' "$aside"
    cat "$said/$aside"
    [ "$status" = 0 ] || failed+=("$aside")
    took+=("$((SECONDS - aside_began)) $aside")
}

finish() {
    printf '\nWhat took longest of %s s:\n' "$SECONDS"
    printf '%s\n' "${took[@]}" | sort -rn | head -n 8 | while read -r seconds title; do
        printf '%6s s  %s\n' "$seconds" "$title"
    done
    echo
    if [ "${#failed[@]}" -gt 0 ]; then
        for title in "${failed[@]}"; do
            printf '== The end of what failed: %s\n\n' "$title"
            tail -n 40 "$said/$title" | cut -c 1-300
        done
        echo
        printf 'FAILED: %s\n' "${failed[@]}"
        exit 1
    fi
    echo "$1"
}
