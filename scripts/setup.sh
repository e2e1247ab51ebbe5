#!/usr/bin/env bash
# Finds everything that is missing, says what it will install and where, and installs it. Where it may not, one message has the
# lines to paste.
#
#     scripts/setup.sh         for the tests
#     scripts/setup.sh demo    for the demo, and for all else that needs Rust alone
#
# TIDEGATE_SETUP=no installs nothing. Nothing is written outside of the repository except by the packages of the system, and by a
# rustup that is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
source scripts/setup/needs.sh
source scripts/setup/system.sh
source scripts/setup/cache.sh
source scripts/setup/message.sh

case "${1:-}" in
    '') needs="$NEEDS_OF_THE_TESTS" ;;
    demo) needs="$NEEDS_OF_THE_DEMO" ;;
    *)
        echo "setup: «$1» is nothing to set up; name demo, or nothing for the tests" >&2
        exit 1
        ;;
esac
case "${TIDEGATE_SETUP:-yes}" in
    yes | no) ;;
    *)
        echo "setup: TIDEGATE_SETUP is «$TIDEGATE_SETUP»; it can be yes or no" >&2
        exit 1
        ;;
esac

log=.cache/setup/log
missing=()       # what is not there
with_packages=() # of it, what the system's packages bring
into_cache=()    # of it, what goes into .cache and node_modules
blocked=()       # of it, what needs a user with other rights
packages=()      # the packages of the system to install

find_missing() {
    local need
    missing=()
    for need in $needs; do
        is_there "$need" || missing+=("$need")
    done
}

# add THING: its packages are to be installed.
add() {
    local name
    with_packages+=("$1")
    for name in $(packages_of "$1"); do
        case " ${packages[*]-} " in
            *" $name "*) ;;
            *) packages+=("$name") ;;
        esac
    done
}

# block THING: it cannot be installed here.
block() {
    case " ${blocked[*]-} " in
        *" $1 "*) ;;
        *) blocked+=("$1") ;;
    esac
}

# plan PACKAGES: how each missing thing is installed. PACKAGES is no when those of the system did not help.
plan() {
    local need more
    with_packages=() into_cache=() blocked=() packages=()
    for need in "${missing[@]}"; do
        if [ "$1" = yes ] && "$may_install" && [ -n "$(packages_of "$need")" ]; then
            add "$need"
        elif fits_the_cache "$need"; then
            into_cache+=("$need")
            for more in $(needs_in_the_cache "$need"); do
                if "$may_install" && [ -n "$(packages_of "$more")" ]; then
                    add "$more"
                elif [ "$more" = curl ]; then
                    block "$more"
                else
                    block "$need"
                fi
            done
        else
            block "$need"
        fi
    done
}

announce_all() {
    local need
    echo "setup: missing on this machine:"
    for need in "${missing[@]}"; do echo "    $(describe "$need")"; done
    echo "setup: installing now (TIDEGATE_SETUP=no installs nothing and shows what to paste):"
    if [ "${#packages[@]}" -gt 0 ]; then echo "    ${packages[*]}, with $(installer)"; fi
    for need in ${into_cache[@]+"${into_cache[@]}"}; do echo "    $(announce "$need")"; done
}

install_all() {
    local need names
    mkdir -p "${log%/*}"
    : >"$log"
    if [ "${#packages[@]}" -gt 0 ]; then
        echo "setup: the system's packages …"
        if ! install_packages "${packages[@]}" >>"$log" 2>&1; then
            # One that this system does not have must not stop the others.
            for need in "${with_packages[@]}"; do
                read -r -a names <<<"$(packages_of "$need")"
                install_packages "${names[@]}" >>"$log" 2>&1 || true
            done
        fi
    fi
    for need in ${into_cache[@]+"${into_cache[@]}"}; do
        echo "setup: $(announce "$need" | sed 's/:.*//') …"
        if [ "$need" = venv ]; then
            # Nothing that follows needs it, and both wait for the network.
            install_venv >>"$log" 2>&1 </dev/null &
            continue
        fi
        # What follows may need it.
        "install_$need" >>"$log" 2>&1 </dev/null || break
        hash -r
        source scripts/environment.sh
    done
    wait
    hash -r
    source scripts/environment.sh
}

why_not() {
    if [ -z "$manager" ]; then
        echo "apt, dnf or brew would install it, and none of them is here"
    elif "$may_install"; then
        echo "the packages of this system do not bring it"
    elif [ "$manager" = brew ]; then
        echo "brew refuses to run as root"
    else
        echo "this user may not install packages: it is not root, and $(if has sudo; then echo "sudo asks for a password"; else echo "sudo is not here"; fi)"
    fi
}

may_install=false
try_packages=yes
find_missing
while [ "${#missing[@]}" -gt 0 ]; do
    if [ "${TIDEGATE_SETUP:-yes}" = no ]; then
        refuse "TIDEGATE_SETUP=no, so nothing was installed." "${missing[@]}"
    fi
    if may_install; then may_install=true; fi
    plan "$try_packages"
    if [ "${#blocked[@]}" -gt 0 ] && [ "$try_packages" = yes ]; then
        refuse "$(why_not). Nothing was installed." "${blocked[@]}"
    fi
    if [ "${#blocked[@]}" -eq 0 ]; then
        announce_all
        install_all
        find_missing
        if [ "${#missing[@]}" -eq 0 ]; then break; fi
    fi
    if [ "$try_packages" = no ] || [ "${#packages[@]}" -eq 0 ]; then
        refuse "not everything could be installed. The end of $log:
$(tail -n 15 "$log" | sed 's/^/    | /')" "${missing[@]}"
    fi
    # What they did not bring may still fit .cache: a system can have a Python or a Redis that is too old.
    try_packages=no
done

if [ "$needs" = "$NEEDS_OF_THE_TESTS" ]; then
    echo "setup: ready ($(cargo --version | cut -d' ' -f1,2), $(python3 --version), Node $(node --version), $("$redis" --version | cut -d' ' -f1-3))"
fi
