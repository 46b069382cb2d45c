#!/usr/bin/env bash
# Tells whether the package holds. Without arguments it takes every step; with names of steps, these alone:
#
#   tests/run.sh
#   tests/run.sh lints tests
#   tests/run.sh benches
#   FUZZ_SECONDS=60 tests/run.sh fuzz
#
# CI=true         the lock file must fit, the work tree must be clean, what is missing fails
# FUZZ_SECONDS    how long each fuzz target runs: 5 in CI, else 0, which leaves fuzzing out
# COUNTERSIGN_SOAK  how many seconds a test of endurance goes on: 1
# COUNTERSIGN_LEDGER_EVENTS  how many events the ledger tests book on each database: 200
# COUNTERSIGN_LEDGER  how many messages the sender's ledger tests deliver from each database: 300
# COUNTERSIGN_ORDERS  how many orders the example's flow carries through kills and pauses: 60
# COUNTERSIGN_ROWS  how many rows there are where claims and lists are measured: 60000; lists are timed from a million on
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

STEPS=(tools format lints docs examples tests sdk doctests dependencies package fuzz)

# Each is linted on its own: a feature must not lean on another that it does not ask for.
FEATURE_SETS=(none default admin "axum sqlite send" sqlite postgres mysql asymmetric axum cache cli rfc9421 saga "saga sqlite" "saga postgres" "saga mysql" send telemetry "telemetry send" test-util full)

CARGO_FUZZ=0.13.2

export CI="${CI:-false}"
export COUNTERSIGN_SOAK="${COUNTERSIGN_SOAK:-1}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"

locked=() dirty=(--allow-dirty) fuzz_seconds="${FUZZ_SECONDS:-0}"
if [[ $CI == true ]]; then
    locked=(--locked) dirty=() fuzz_seconds="${FUZZ_SECONDS:-5}"
fi

passed=0

step_tools() {
    local missing=()
    for tool in cc c++ curl python3; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    if ((${#missing[@]})); then
        if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq build-essential curl python3
        else
            echo "missing: ${missing[*]} (on Debian: apt-get install build-essential curl python3)" >&2
            return 1
        fi
    fi
    rustc --version
    cargo fmt --version
    cargo clippy --version
    if has_nextest; then cargo nextest --version | head -n 1; else echo "no cargo-nextest: cargo test takes its place"; fi
    if has_nightly; then rustc +nightly --version; else echo "no nightly: nothing is fuzzed, and docs.rs is not imitated"; fi
}

step_format() {
    cargo fmt --check
    for package in fuzz benches; do
        if [[ -f $package/Cargo.toml ]]; then cargo fmt --manifest-path "$package/Cargo.toml" --check; fi
    done
}

step_lints() {
    local set
    for set in "${FEATURE_SETS[@]}"; do
        echo "-- $set"
        case $set in
            none) lint --no-default-features ;;
            default) lint ;;
            full) lint --all-features --all-targets ;;
            *) lint --no-default-features --features "$set" ;;
        esac
    done
}

lint() {
    cargo clippy --quiet "${locked[@]}" "$@" -- -D warnings
}

step_docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet "${locked[@]}" --no-deps --all-features
    if has_nightly; then
        echo "-- as docs.rs builds it"
        RUSTDOCFLAGS="-D warnings --cfg docsrs" cargo +nightly doc --quiet "${locked[@]}" --no-deps --all-features
    fi
}

# Before the tests, which run them.
step_examples() {
    cargo build --quiet "${locked[@]}" --examples --all-features
}

step_tests() {
    install_browser || [[ $CI != true ]]
    with_servers run_tests
}

# For the tests of the operators' pages. Where it is missing they are left out, and in CI they fail.
install_browser() {
    if command -v chromedriver >/dev/null; then return; fi
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "missing: chromedriver (on Debian: apt-get install chromium chromium-driver)" >&2
        return 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver
}

run_tests() {
    if has_nextest; then
        local status=0
        counted cargo nextest run "${locked[@]}" --all-features -E 'not test(/^(sdk|servers::faults)::/)' || status=$?
        # These lose connections and wait until new ones are had, most of their time.
        counted cargo nextest run "${locked[@]}" --all-features --test-threads "$((4 * $(nproc)))" \
            -E 'test(/^servers::faults::/)' || status=$?
        return "$status"
    else
        counted cargo test "${locked[@]}" --no-fail-fast --all-features --lib --bins --tests -- --skip sdk::
    fi
}

# Beside the tests, since it installs a few hundred packages: the vendors' own libraries.
step_sdk() {
    local dir installed status=0
    dir=$(mktemp -d)
    if installed=$(tests/sdk/install.sh "$dir"); then
        eval "$installed"
        if has_nextest; then
            counted cargo nextest run "${locked[@]}" --all-features -E 'test(/^sdk::/)' || status=$?
        else
            counted cargo test "${locked[@]}" --all-features --test it sdk:: || status=$?
        fi
    elif [[ $CI == true ]]; then
        status=1
    else
        echo "LEFT OUT: the vendors' libraries cannot be installed here"
    fi
    rm -rf "$dir"
    return "$status"
}

step_doctests() {
    counted cargo test "${locked[@]}" --doc --all-features
}

# Runs something beside temporary database servers. Where one is missing its tests are left out, and in CI they fail.
with_servers() {
    local dir started status=0
    tests/servers.sh install || [[ $CI != true ]]
    dir=$(mktemp -d)
    if started=$(tests/servers.sh start "$dir"); then
        eval "$started"
    else
        status=1
    fi
    if ((status == 0)); then "$@" || status=$?; fi
    tests/servers.sh stop "$dir"
    return "$status"
}

# Runs tests and adds up what passed. A run in which nothing passed is no test.
counted() {
    local log count
    log=$(mktemp)
    # Said in full: where the caller asks for the status, the shell does not stop at a command that fails.
    if ! "$@" 2>&1 | tee "$log"; then
        rm -f "$log"
        return 1
    fi
    count=$(sed -nE 's/^ *Summary .* ([0-9]+) passed.*/\1/p; s/^test result: ok\. ([0-9]+) passed;.*/\1/p' "$log" |
        awk '{ sum += $1 } END { print sum + 0 }')
    rm -f "$log"
    if ((count == 0)); then
        echo "no test ran" >&2
        return 1
    fi
    passed=$((passed + count))
}

step_dependencies() {
    python3 tests/dependencies.py --test
    python3 tests/dependencies.py
}

step_package() {
    local listed
    listed=$(cargo package --quiet "${locked[@]}" "${dirty[@]}" --list)
    for file in CHANGELOG.md LICENSE-APACHE LICENSE-MIT README.md src/lib.rs; do
        grep -qx "$file" <<<"$listed" || { echo "the package lacks $file" >&2; return 1; }
    done
    if grep -E '^(\.|benches/|fuzz/|tests/)' <<<"$listed" | grep -vx '\.cargo_vcs_info\.json'; then
        echo "the package holds what its users do not need" >&2
        return 1
    fi
    cargo package --quiet "${locked[@]}" "${dirty[@]}"
    echo "$(wc -l <<<"$listed") files"
}

# By name only: the rivals take longer to build than the package.
step_benches() {
    cargo clippy --quiet "${locked[@]}" --manifest-path benches/Cargo.toml --all-targets -- -D warnings
}

step_fuzz() {
    if ((fuzz_seconds == 0)); then
        echo "left out: FUZZ_SECONDS is 0 (the corpora were replayed by the tests)"
        return
    fi
    if ! has_nightly; then
        echo "left out: there is no nightly toolchain"
        return
    fi
    if ! command -v cargo-fuzz >/dev/null && ! cargo install cargo-fuzz --locked --quiet --version "$CARGO_FUZZ"; then
        echo "left out: cargo-fuzz is not there and cannot be installed"
        return
    fi
    local target found
    for target in $(cargo +nightly fuzz list); do
        echo "-- $target"
        # The fuzzer writes to the first folder: new inputs stay out of the work tree.
        found="${CARGO_TARGET_DIR:-target}/fuzz-found/$target"
        mkdir -p "$found"
        cargo +nightly fuzz run "$target" "$found" "fuzz/corpus/$target" -- \
            -max_total_time="$fuzz_seconds" -verbosity=0 -print_final_stats=1
    done
}

has_nextest() {
    cargo nextest --version >/dev/null 2>&1
}

has_nightly() {
    rustc +nightly --version >/dev/null 2>&1
}

main() {
    local step began
    if (($# == 0)); then set -- "${STEPS[@]}"; fi
    for step in "$@"; do
        if [[ $(type -t "step_$step") != function ]]; then
            echo "no step is called '$step'; there are: ${STEPS[*]}" >&2
            exit 2
        fi
    done
    for step in "$@"; do
        printf '\n== %s\n' "$step"
        began=$SECONDS
        trap 'echo "== '"$step"' failed" >&2' EXIT
        "step_$step"
        trap - EXIT
        printf '== %s: %s s\n' "$step" "$((SECONDS - began))"
    done
    printf '\nall of it in %s s\n' "$SECONDS"
    # The count comes last, where those who read only the end of a log look for it.
    if ((passed)); then echo "$passed passed, 0 failed"; fi
}

main "$@"
