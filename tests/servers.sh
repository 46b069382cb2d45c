#!/usr/bin/env bash
# Temporary database servers for the tests, on loopback, each with data of its own that is gone afterwards.
#
#   tests/servers.sh install              what is missing, with apt-get
#   eval "$(tests/servers.sh start DIR)"  starts what there is; says where on stdout, and on stderr what there is not
#   tests/servers.sh stop DIR
#
# Commits are durable here as in production: a store must not pass its tests by losing less than it promised.
set -euo pipefail

main() {
    case "${1:-}" in
        install) install ;;
        start) start "${2:?a directory}" ;;
        stop) stop "${2:?a directory}" ;;
        *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
}

install() {
    local missing=()
    [[ -n $(postgres_bin) ]] || missing+=(postgresql)
    command -v mariadbd >/dev/null || missing+=(mariadb-server)
    command -v pgbouncer >/dev/null || missing+=(pgbouncer)
    if ((${#missing[@]})); then
        if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
            echo "missing: ${missing[*]} (on Debian: apt-get install ${missing[*]})" >&2
            return 1
        fi
        # Debian would start a server of its own for each: ours are enough.
        apt-get update -qq >&2
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
    fi
}

start() {
    local dir=$1
    mkdir -p "$dir"
    # The servers run as somebody else, who must get to their files.
    chmod 755 "$dir"
    if [[ -n $(postgres_bin) ]]; then start_postgres "$dir"; else echo "no PostgreSQL: its tests are left out" >&2; fi
    if command -v mariadbd >/dev/null; then start_mariadb "$dir"; else echo "no MariaDB: its tests are left out" >&2; fi
}

start_postgres() {
    local data=$1/postgres bin port
    bin=$(postgres_bin) port=$(free_port)
    mkdir "$data"
    owned "$data" postgres
    as postgres "$bin/initdb" --pgdata "$data/data" --username postgres --auth trust --encoding UTF8 --locale C.UTF-8 >"$1/initdb.log"
    as postgres "$bin/pg_ctl" --pgdata "$data/data" --log "$data/log" --wait start --options \
        "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$data -c max_connections=400 -c fsync=on -c synchronous_commit=on" >&2
    echo "export COUNTERSIGN_TEST_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres"
    if command -v pgbouncer >/dev/null; then start_pgbouncer "$1" "$port"; else echo "no PgBouncer: its test is left out" >&2; fi
}

start_pgbouncer() {
    local data=$1/pgbouncer port
    port=$(free_port)
    mkdir "$data"
    cat >"$data/pgbouncer.ini" <<INI
[databases]
* = host=127.0.0.1 port=$2 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 400
ignore_startup_parameters = extra_float_digits, options
logfile = $data/log
pidfile = $data/pid
INI
    owned "$data" postgres
    as postgres pgbouncer --quiet --daemon "$data/pgbouncer.ini"
    echo "export COUNTERSIGN_TEST_PGBOUNCER=postgres://postgres@127.0.0.1:$port/postgres"
}

start_mariadb() {
    local data=$1/mariadb port tries=0
    port=$(free_port)
    mkdir "$data"
    owned "$data" mysql
    as mysql mariadb-install-db --no-defaults --datadir="$data/data" --auth-root-authentication-method=normal --skip-test-db >"$1/mariadb-install.log" 2>&1
    as mysql mariadbd --no-defaults --datadir="$data/data" --socket="$data/socket" --pid-file="$data/pid" \
        --bind-address=127.0.0.1 --port="$port" --max-connections=400 --innodb-flush-log-at-trx-commit=1 \
        >"$data/log" 2>&1 &
    until mariadb-admin --no-defaults --socket="$data/socket" --user=root ping >/dev/null 2>&1; do
        if ((++tries > 300)); then cat "$data/log" >&2; return 1; fi
        sleep 0.1
    done
    mariadb --no-defaults --socket="$data/socket" --user=root <<<"
        CREATE USER countersign@'127.0.0.1'; GRANT ALL ON *.* TO countersign@'127.0.0.1';
        CREATE USER countersign@localhost; GRANT ALL ON *.* TO countersign@localhost;" >&2
    echo "export COUNTERSIGN_TEST_MYSQL=mysql://countersign@127.0.0.1:$port"
}

stop() {
    local dir=$1 pid
    if [[ -f $dir/pgbouncer/pid ]]; then kill "$(<"$dir/pgbouncer/pid")" || true; fi
    if [[ -f $dir/mariadb/pid ]]; then
        pid=$(<"$dir/mariadb/pid")
        kill "$pid" || true
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    fi
    if [[ -f $dir/postgres/data/postmaster.pid ]]; then
        as postgres "$(postgres_bin)/pg_ctl" --pgdata "$dir/postgres/data" --mode immediate stop >/dev/null || true
    fi
    rm -rf "$dir"
}

postgres_bin() {
    local newest
    newest=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
    if [[ -x $newest ]]; then dirname "$newest"; elif command -v initdb >/dev/null; then dirname "$(command -v initdb)"; fi
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Servers refuse to run as root.
as() {
    local user=$1
    shift
    if [[ $(id -u) == 0 ]]; then (cd / && exec setpriv --reuid "$user" --regid "$user" --init-groups "$@"); else "$@"; fi
}

owned() {
    if [[ $(id -u) == 0 ]]; then chown "$2" "$1"; fi
}

main "$@"
