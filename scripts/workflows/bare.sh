#!/usr/bin/env bash
# Tries `make demo` and the set-up of `make test` on bare machines: root file systems of Debian that have make and git and nothing
# else. Each trial starts from a fresh copy, as root or as a user who may not become root. Needs root (or a sudo that asks for no
# password), apt for debootstrap, and about 4 GB of disk.
#
#     scripts/workflows/bare.sh              all trials
#     scripts/workflows/bare.sh demo_root …  only these
#
# SUITE names another release of Debian. What the trials print is kept in .cache/bare.
set -euo pipefail
cd "$(dirname "$0")/../.."

suite="${SUITE:-bookworm}"
logs="$PWD/.cache/bare/$suite"
# Outside of the repository: cargo and git look for files in the folders above.
roots="${TMPDIR:-/tmp}/tidegate-bare-$suite"
failed=()

source scripts/setup/needs.sh
source scripts/setup/system.sh
if ! is_root; then
    # Nothing of this environment but how the network is reached is handed on below.
    exec sudo -n --preserve-env "$0" "$@"
fi
if ! has debootstrap; then
    echo "bare: installing debootstrap …"
    install_packages debootstrap debian-archive-keyring >/dev/null || {
        echo "bare: debootstrap could not be installed. On Debian, as root: apt-get install debootstrap" >&2
        exit 1
    }
fi

dispose() {
    ! mountpoint -q "$1/proc" || umount "$1/proc"
    rm -rf --one-file-system "$1"
}
finish() {
    local root
    for root in "$roots"/*; do [ ! -d "$root" ] || dispose "$root"; done
    rmdir "$roots" 2>/dev/null || true
}
trap finish EXIT

# The user that may do nothing is 1000. A machine behind a proxy has certificates of its own, which its bare machines need too.
make_base() {
    # What a run that was killed left behind.
    finish
    mkdir -p "$roots" "$logs"
    echo "bare: a root file system of Debian $suite …"
    debootstrap --variant=minbase --include=make,git "$suite" "$roots/base" >"$logs/debootstrap.log" 2>&1 || {
        tail -n 5 "$logs/debootstrap.log" >&2
        echo "bare: debootstrap failed; its whole output is $logs/debootstrap.log" >&2
        exit 1
    }
    cp /etc/resolv.conf "$roots/base/etc/resolv.conf"
    mkdir -p "$roots/base/usr/local/share/ca-certificates"
    cp /usr/local/share/ca-certificates/*.crt "$roots/base/usr/local/share/ca-certificates/" 2>/dev/null || true
    git clone --quiet --no-hardlinks "$PWD" "$roots/base/tidegate"
    chroot "$roots/base" useradd --create-home --uid 1000 tester
}

# fresh USER: a root file system whose checkout belongs to that user.
fresh() {
    [ ! -d "$roots/$trial" ] || dispose "$roots/$trial"
    cp -a "$roots/base" "$roots/$trial"
    mount -t proc proc "$roots/$trial/proc"
    chown -R "$1:$1" "$roots/$trial/tidegate"
}

# inside USER COMMAND: runs it in the checkout, with nothing of this environment but how the network is reached.
inside() {
    local user="$1" home=/root name passed=() how=()
    shift
    if [ "$user" -ne 0 ]; then home=/home/tester; fi
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_CERT PIP_INDEX_URL NODE_EXTRA_CA_CERTS \
        npm_config_registry; do
        [ -z "${!name:-}" ] || passed+=("$name=${!name}")
    done
    if [ -n "${offline:-}" ]; then how=(unshare --net); fi
    ${how[@]+"${how[@]}"} chroot --userspec="$user:$user" --groups="$user" "$roots/$trial" /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" LANG=C.UTF-8 ${passed[@]+"${passed[@]}"} \
        bash -c "cd /tidegate && $*" </dev/null
}

# runs STATUS USER COMMAND: runs it, and compares whether it succeeds (0) or not (1).
runs() {
    local wanted="$1" status=0
    shift
    echo "\$ $2" >>"$log"
    inside "$@" >"$log.last" 2>&1 || status=1
    cat "$log.last" >>"$log"
    [ "$status" = "$wanted" ] || complain "«$2» ended with $status"
}

complain() {
    wrong+=("$*")
    echo "WRONG: $*" >>"$log"
}

# Of the output of the last command.
says() { grep -qF -- "$1" "$log.last" || complain "«$1» is not said"; }
is_silent_about() { ! grep -qF -- "$1" "$log.last" || complain "«$1» is said"; }

has_file() { [ -e "$roots/$trial/$1" ] || complain "$1 is not there"; }
has_no_file() { [ ! -e "$roots/$trial/$1" ] || complain "$1 is there"; }

packages_of_the_system() { chroot "$roots/$trial" dpkg-query --show; }

# What a shell of the user reads, and where rustup and cargo put what they have unless they are told otherwise.
touches_no_home() {
    local home
    for home in root home/tester; do
        has_no_file "$home/.cargo"
        has_no_file "$home/.rustup"
        ! grep -qs cargo "$roots/$trial/$home"/.profile "$roots/$trial/$home"/.bashrc || complain "the profile of $home names cargo"
    done
}

# installs_nothing USER COMMAND: it is refused with one message.
installs_nothing() {
    local before
    before="$(packages_of_the_system)"
    runs 1 "$@"
    says "setup: missing on this machine:"
    says "setup: paste these lines, then run the command again:"
    [ "$(grep -c 'paste these lines' "$log.last")" = 1 ] || complain "there is more than one message"
    [ "$before" = "$(packages_of_the_system)" ] || complain "packages were installed"
    has_no_file tidegate/.cache/cargo
    has_no_file tidegate/.cache/venv
    has_no_file tidegate/node_modules
    touches_no_home
}

demo_root() {
    fresh 0
    runs 0 0 "make demo"
    says "Rust $rust (cargo)"
    says "ca-certificates gcc libc6-dev curl, with apt-get as root"
    says "into .cache/rustup and .cache/cargo"
    is_silent_about "Python"
    is_silent_about "Node"
    has_file tidegate/.cache/cargo/bin/cargo
    touches_no_home
    # Now nothing is missing.
    runs 0 0 "TIDEGATE_SETUP=no make demo"
    is_silent_about "setup:"
}

demo_user_without_compiler() {
    fresh 1000
    installs_nothing 1000 "make demo"
    says "su -c 'apt-get update && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev curl'"
}

demo_user_with_compiler() {
    fresh 1000
    runs 0 0 "apt-get install -y -qq --no-install-recommends ca-certificates gcc libc6-dev wget"
    runs 0 1000 "make demo"
    is_silent_about "apt"
    has_file tidegate/.cache/cargo/bin/cargo
    touches_no_home
}

demo_refused() {
    fresh 0
    installs_nothing 0 "TIDEGATE_SETUP=no make demo"
    says "apt-get update && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev curl"
    says "--default-toolchain $rust"
}

demo_offline() {
    fresh 0
    offline=1 installs_nothing 0 "make demo"
    says "not everything could be installed"
}

test_refused() {
    fresh 0
    installs_nothing 0 "TIDEGATE_SETUP=no make test"
    says "apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev curl python3 python3-venv openssl redis-server postgresql pgbouncer"
    says "nodejs"
}

test_user() {
    fresh 1000
    installs_nothing 1000 "make test"
    says "su -c 'apt-get update && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev curl openssl redis-server'"
    # The command itself would install these then.
    says "into .cache/python"
    says "into .cache/node"
}

# The set-up of the tests with nothing there, and then with one thing gone at a time.
test_root() {
    local gone number how
    fresh 0
    runs 0 0 "make setup"
    says "setup: ready"
    says "into .cache/node, from PyPI"
    runs 0 0 "TIDEGATE_SETUP=no make setup"
    runs 0 0 "source scripts/environment.sh && node --version && npm --version && .cache/venv/bin/maturin --version && redis-server --version"
    while IFS='|' read -r gone number how; do
        runs 0 0 "$how"
        runs 1 0 "TIDEGATE_SETUP=no make setup"
        says "$gone"
        [ "$(sed '/TIDEGATE_SETUP=no, so/,$d' "$log.last" | grep -c '^    ')" = "$number" ] || complain "without $gone, another number is missing"
        runs 0 0 "make setup"
        says "$gone"
        says "setup: ready"
    done <<'GONE'
a C compiler|1|apt-get purge -y -qq gcc
Rust|1|rm -r .cache/cargo .cache/rustup
Python|2|apt-get purge -y -qq 'python3*-venv' && rm -r .cache/venv
openssl, which|1|dpkg --purge --force-depends openssl
Redis|1|apt-get purge -y -qq redis-server redis-tools
Node|1|rm -r .cache/node
package-lock.json|1|rm -r node_modules
GONE
    touches_no_home
}

rust="$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)"
trials=(demo_refused demo_user_without_compiler demo_offline test_refused test_user demo_root demo_user_with_compiler test_root)
if [ "$#" -gt 0 ]; then trials=("$@"); fi

make_base
for trial in "${trials[@]}"; do
    wrong=()
    log="$logs/$trial.log"
    : >"$log"
    echo "bare: $trial …"
    "$trial"
    rm -f "$log.last"
    dispose "$roots/$trial"
    if [ "${#wrong[@]}" -gt 0 ]; then
        printf '    WRONG: %s\n' "${wrong[@]}"
        echo "    the whole output is $log"
        failed+=("$trial")
    fi
done

if [ "${#failed[@]}" -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "bare: all ${#trials[@]} trials on Debian $suite went as they should."
