#!/usr/bin/env bash
# Measures all of it in one run, and writes the tables and plots of the guide: src/guide/performance.md.
#
#   benches/all.sh                                    about ten minutes, on a machine that does nothing else
#   BENCH_SECONDS=2 BENCH_ROUNDS=1 benches/all.sh     a trial, which writes them too
#
# What is compared takes turns, for so many rounds, and the median counts. Where PostgreSQL is installed, a server is
# started for it, with durable commits; without it those rows are left out, loudly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds="${BENCH_SECONDS:-8}"
rounds="${BENCH_ROUNDS:-3}"
messages="${BENCH_MESSAGES:-50000}"
target="${CARGO_TARGET_DIR:-target}"
measured="$PWD/$target/measured.jsonl"
if [[ $target == /* ]]; then measured="$target/measured.jsonl"; fi
work=""

finish() {
    if [[ -n $work ]]; then
        ../tests/servers.sh stop "$work/servers" 2>/dev/null || true
        rm -rf "$work"
    fi
}
trap finish EXIT

main() {
    local round
    cargo build --quiet --release --bins
    work=$(mktemp -d "$target/measuring.XXXXXX")
    work=$(realpath "$work")
    # The database's user has to get through.
    chmod 755 "$work"
    : >"$measured"
    eval "$(../tests/servers.sh start "$work/servers" postgres)"
    if [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]]; then
        export LOAD_POSTGRES=$COUNTERSIGN_TEST_POSTGRES
    else
        echo "no PostgreSQL: its rows are left out" >&2
    fi

    cargo bench --quiet --bench verify >>"$measured"
    if command -v valgrind >/dev/null; then
        python3 count.py >>"$measured"
    else
        echo "no valgrind: instructions are not counted" >&2
    fi
    cargo bench --quiet --bench core >>"$measured"
    for ((round = 0; round < rounds; round++)); do
        echo "round $((round + 1)) of $rounds" >&2
        receive
        send "$round"
    done
    receivers_side_by_side
    python3 report.py "$measured" ../src/guide/performance.md
    echo "written: src/guide/performance.md, from $measured" >&2
}

receive() {
    local receivers=(bare handwritten memory sqlite)
    if [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]]; then receivers+=(postgres); fi
    load "first deliveries" "${receivers[@]}"
    LOAD_CACHE=67108864 LOAD_PREPARED=20000 LOAD_CYCLE=1 load "repeats" "${receivers[@]:3}"
    if [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]]; then two_commits; fi
}

# A line for each receiver, with what was sent to it.
load() {
    local what=$1
    shift
    LOAD_SECONDS=$seconds ./load.sh "$@" |
        sed "s/^{/{\"bench\":\"receive\",\"what\":\"$what\",/" >>"$measured"
}

# What a handler does at the least, in the database's own program: an insert and an update, each with its commit.
two_commits() {
    local url=$COUNTERSIGN_TEST_POSTGRES rate clients
    psql --quiet "$url" --command \
        "CREATE TABLE IF NOT EXISTS bench_receipts (id bigint PRIMARY KEY, state text NOT NULL, status int, body text)"
    cat >"$work/two_commits.sql" <<'SQL'
\set r random(1, 1000000000000000)
INSERT INTO bench_receipts (id, state) VALUES (:r, 'processing');
UPDATE bench_receipts SET state = 'succeeded', status = 200, body = '1024' WHERE id = :r;
SQL
    for clients in 32 64; do
        rate=$(pgbench --no-vacuum --protocol prepared --client "$clients" --time "$seconds" --file "$work/two_commits.sql" "$url" \
            2>/dev/null | sed -nE 's/^tps = ([0-9]+).*/\1/p')
        echo "{\"bench\":\"pgbench\",\"what\":\"$clients clients\",\"per_second\":$rate}" >>"$measured"
    done
}

send() {
    local store url
    for store in sqlite postgres; do
        case $store in
            sqlite) url=sqlite:$work/outbox.$1.db ;;
            postgres) url=$(database "outbox_$1") || continue ;;
        esac
        dispatch "$store" "$url" --messages "$messages"
    done
    url=$(database "rate_$1") || return 0
    dispatch postgres "$url" --rate 500 --seconds "$seconds"
}

dispatch() {
    local store=$1
    shift
    "$target/release/dispatch" "$@" | sed "s/^{/{\"store\":\"$store\",/" >>"$measured"
}

# A database of its own: ids of an earlier run are not new ones.
database() {
    [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]] || return 1
    psql --quiet "$COUNTERSIGN_TEST_POSTGRES" --command "CREATE DATABASE $1" >&2
    echo "${COUNTERSIGN_TEST_POSTGRES%/*}/$1"
}

# 1, 2, 4 and 8 processes on one database, with the same 64 connections shared among them.
receivers_side_by_side() {
    local count each url
    [[ -n ${COUNTERSIGN_TEST_POSTGRES:-} ]] || return 0
    for count in 1 2 4 8; do
        url=$(database "side_by_side_$count")
        local servers=() loads=() number
        for ((number = 0; number < count; number++)); do
            LOAD_POSTGRES=$url "$target/release/receiver" "$work/unused.$number.db" >"$work/out.$number" &
            servers+=($!)
            # One after another: the first one makes the tables.
            until grep -q '^listening on' "$work/out.$number"; do sleep 0.1; done
        done
        for ((number = 0; number < count; number++)); do
            each=$(sed -nE 's/^listening on (.*)$/\1/p' "$work/out.$number")
            "$target/release/load" "$each/postgres" --seconds "$seconds" --connections $((64 / count)) \
                --prepared $((seconds * 30000)) >"$work/load.$number" &
            loads+=($!)
        done
        wait "${loads[@]}"
        cat "$work"/load.? | sed "s/^{/{\"bench\":\"side by side\",\"what\":\"$count\",/" >>"$measured"
        kill "${servers[@]}"
        wait "${servers[@]}" 2>/dev/null || true
        rm -f "$work"/load.? "$work"/out.?
    done
}

main
