# shellcheck shell=bash disable=SC2034,SC2154
# The one message for what is missing and may not or could not be installed, with the lines to paste.

# The command that installs packages, as a user types it.
packages_line() {
    case "$manager" in
        apt) line_of_root "apt-get update && apt-get install -y --no-install-recommends $*" ;;
        dnf) line_of_root "dnf install -y $*" ;;
        brew) echo "brew install $*" ;;
    esac
}

line_of_root() {
    if is_root; then
        echo "$1"
    elif has sudo; then
        echo "sudo sh -c '$1'"
    else
        echo "su -c '$1'"
    fi
}

# The line for a thing that no package of the system brings.
line_of() {
    case "$manager-$1" in
        *-rust)
            if has rustup; then
                echo "rustup toolchain install $pinned_rust --profile minimal --component rustfmt --component clippy"
            else
                echo "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --default-toolchain $pinned_rust && . \"\$HOME/.cargo/env\""
            fi
            ;;
        apt-node) line_of_root "curl -fsSL https://deb.nodesource.com/setup_24.x | bash - && apt-get install -y nodejs" ;;
        dnf-node) packages_line nodejs ;;
        brew-node) packages_line node ;;
        *-venv) echo scripts/python.sh ;;
        *-modules) echo scripts/node.sh ;;
        *-cc) if [ "$(uname -s)" = Darwin ]; then echo "xcode-select --install"; else echo "# your system's package of gcc"; fi ;;
        *-python) echo "curl -LsSf https://astral.sh/uv/install.sh | sh && ~/.local/bin/uv python install 3.13" ;;
        *-node) echo "# Node $oldest_node or newer: https://nodejs.org/en/download" ;;
        *-redis)
            if [ "$redis" = redis-server ]; then
                echo "# Redis $oldest_redis or newer: https://redis.io/docs/latest/operate/oss_and_stack/install"
            else
                echo "unset TIDEGATE_REDIS_SERVER    # or install $redis"
            fi
            ;;
        *) echo "# your system's package of $1" ;;
    esac
}

# lines THING…
lines() {
    local thing names packages=() others=()
    for thing in "$@"; do
        names="$(packages_of "$thing")"
        if [ -n "$names" ]; then
            # shellcheck disable=SC2206 # Several packages for one thing.
            packages+=($names)
        else
            others+=("$(line_of "$thing")")
            case "${others[${#others[@]} - 1]}" in
                # The line needs it.
                *curl*) if ! has curl && [ -n "$(packages_of curl)" ]; then packages+=(curl); fi ;;
            esac
        fi
    done
    if [ "${#packages[@]}" -gt 0 ]; then
        packages_line "$(printf '%s\n' "${packages[@]}" | awk '!seen[$0]++' | tr '\n' ' ' | sed 's/ $//')"
    fi
    if [ "${#others[@]}" -gt 0 ]; then printf '%s\n' "${others[@]}"; fi
}

# refuse REASON THING…: says everything that is missing, and the lines for those things.
refuse() {
    local reason="$1" thing rest=()
    shift
    {
        echo "setup: missing on this machine:"
        for thing in "${missing[@]}"; do
            echo "    $(describe "$thing")"
            case " $* " in *" $thing "*) ;; *) rest+=("$thing") ;; esac
        done
        # To download what is missing.
        case " $* " in *" curl "*) echo "    $(describe curl)" ;; esac
        printf 'setup: %s\n' "$reason"
        echo "setup: paste these lines, then run the command again:"
        lines "$@" | sed 's/^/    /'
        if [ "${#rest[@]}" -gt 0 ]; then
            echo "setup: the command itself installs the rest then:"
            for thing in "${rest[@]}"; do echo "    $(announce "$thing")"; done
        fi
    } >&2
    exit 1
}
