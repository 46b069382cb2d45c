#!/usr/bin/env bash
# Loads each receiver in turn with signed requests over loopback, and prints a line of JSON for each.
#
#   benches/load.sh
#   LOAD_POSTGRES=postgres://… benches/load.sh postgres
#   LOAD_CACHE=67108864 LOAD_PREPARED=20000 LOAD_CYCLE=1 benches/load.sh sqlite     what repeats cost
#   LOAD_SECONDS=30 LOAD_CONNECTIONS=8 benches/load.sh bare handwritten
#
# Databases lie in the target folder, on the disk: in memory a commit would cost nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds="${LOAD_SECONDS:-10}"
connections="${LOAD_CONNECTIONS:-64}"
body="${LOAD_BODY:-1024}"
prepared="${LOAD_PREPARED:-$((seconds * 90000))}"
cycle=()
# The prepared requests again and again: from the second time on they are repeats.
if [[ -n ${LOAD_CYCLE:-} ]]; then cycle=(--cycle); fi

target="${CARGO_TARGET_DIR:-target}"
server=""
work=""

# Which program serves a receiver. Its path is the receiver's name.
program_of() {
    case $1 in
        bare | handwritten) echo handwritten ;;
        memory | mysql | postgres | sqlite) echo receiver ;;
        *) echo "no receiver is called '$1'" >&2; return 1 ;;
    esac
}

clean() {
    if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; fi
    if [[ -n $work ]]; then rm -rf "$work"; fi
}
trap clean EXIT

main() {
    local receiver program url
    if (($# == 0)); then set -- bare handwritten memory sqlite; fi
    cargo build --quiet --release --bins
    work=$(mktemp -d "$target/load.XXXXXX")
    for receiver in "$@"; do
        program=$(program_of "$receiver")
        "$target/release/$program" "$work/$receiver.db" >"$work/$receiver.out" &
        server=$!
        url=$(address "$work/$receiver.out")
        "$target/release/load" "$url/$receiver" --seconds "$seconds" --connections "$connections" --body "$body" \
            --prepared "$prepared" "${cycle[@]}"
        kill "$server"
        wait "$server" 2>/dev/null || true
        server=""
    done
}

# Where the server listens, once it says so.
address() {
    local tries
    for tries in {1..100}; do
        if sed -nE 's/^listening on (.*)$/\1/p' "$1" | grep .; then return; fi
        kill -0 "$server" || return 1
        sleep 0.1
    done
    echo "the server did not say where it listens" >&2
    return 1
}

main "$@"
