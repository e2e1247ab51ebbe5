# shellcheck shell=bash disable=SC2034,SC2154
# The packages of the system: which manager there is, what it calls things, and whether this user may use it.

if [ "$(uname -s)" = Darwin ]; then
    manager="$(if has brew; then echo brew; fi)"
elif has apt-get; then
    manager=apt
elif has dnf; then
    manager=dnf
else
    manager=
fi

is_root() { [ "$(id -u)" -eq 0 ]; }

# Runs a command as root without ever asking for a password, which CI cannot type.
as_root() { if is_root; then "$@"; else sudo -n "$@"; fi; }

may_install() {
    case "$manager" in
        # Homebrew refuses to run as root.
        brew) ! is_root ;;
        apt | dnf) is_root || { has sudo && sudo -n true 2>/dev/null; } ;;
        *) false ;;
    esac
}

installer() {
    case "$manager" in
        apt) echo "apt-get as root" ;;
        dnf) echo "dnf as root" ;;
        brew) echo brew ;;
    esac
}

# The packages that a thing comes in. Empty: the system has none that helps.
packages_of() {
    case "$manager-$1" in
        apt-certificates | dnf-certificates) echo ca-certificates ;;
        apt-curl | dnf-curl) echo curl ;;
        apt-cc) echo gcc libc6-dev ;;
        dnf-cc) echo gcc ;;
        # A Python that is too old is what this system has.
        apt-python) if ! has python3 || find_python >/dev/null; then echo python3 python3-venv; fi ;;
        dnf-python) if has python3; then echo python3.12; else echo python3; fi ;;
        brew-python) echo python@3.13 ;;
        *-openssl) if [ -n "$manager" ]; then echo openssl; fi ;;
        *-redis)
            # A server of another name is the user's own.
            if [ "$redis" != redis-server ]; then return; fi
            case "$manager" in
                apt) echo redis-server ;;
                # By its path, since Fedora has it in a package of Valkey.
                dnf) echo /usr/bin/redis-server ;;
                brew) echo redis ;;
            esac
            ;;
        apt-postgres) echo postgresql pgbouncer ;;
        dnf-postgres) echo postgresql-server pgbouncer ;;
        brew-postgres) echo postgresql@17 pgbouncer ;;
        apt-headers) echo libssl-dev ;;
        dnf-headers) echo openssl-devel ;;
        brew-headers) echo openssl@3 ;;
    esac
}

# Everything that the commands print goes to the log, whose end is shown when something is still missing.
install_packages() {
    case "$manager" in
        apt)
            # Package lists may be absent or outdated; they are fetched only when the first attempt fails.
            install_with_apt "$@" || { as_root apt-get update -qq </dev/null && install_with_apt "$@"; }
            ;;
        dnf) as_root dnf install -y -q "$@" </dev/null ;;
        brew) env HOMEBREW_NO_AUTO_UPDATE=1 brew install --quiet "$@" </dev/null ;;
    esac
}

install_with_apt() {
    # RUNLEVEL=1 keeps the packages from starting servers of their own: the tests start theirs, on free ports.
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
