# The parts of a script, one after the other. Sourced:
#
#     part TITLE COMMAND…    runs a command; the parts behind it run also after it failed, so that one run shows everything
#     beside TITLE COMMAND…  begins a command, which runs beside the next parts
#     rejoin                 waits for the commands that were begun, and shows what each of them said
#     finish SENTENCE        says what took longest, and what failed with its last lines; the sentence stands where nothing did

failed=()
took=()
said="$(mktemp -d)"
asides=()
aside_processes=()
end_asides() {
    local process
    # Bash before 4.4, which macOS has, takes an empty list for an unset one.
    for process in ${aside_processes[@]+"${aside_processes[@]}"}; do
        kill -- "-$process"
    done
}
trap 'end_asides; rm -rf "$said"' EXIT

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
    local title="$1" began=$SECONDS
    shift
    printf '\n== %s\n   %s\n   beside what follows; its output comes behind that\n' "$title" "$*"
    # With job control it has a process group of its own, and does not ignore Ctrl-C, which tests send to themselves.
    set -m
    {
        status=0
        "$@" </dev/null >"$said/$title" 2>&1 || status=$?
        echo $((SECONDS - began)) >"$said/$title.seconds"
        exit "$status"
    } &
    asides+=("$title")
    aside_processes+=($!)
    set +m
}

rejoin() {
    local each title
    for each in "${!asides[@]}"; do
        title="${asides[each]}"
        wait "${aside_processes[each]}" || failed+=("$title")
        printf '\n== %s\n' "$title"
        cat "$said/$title"
        took+=("$(cat "$said/$title.seconds") $title")
    done
    asides=()
    aside_processes=()
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
