#!/usr/bin/env bash
# Temporary database servers for the tests, on loopback, each with data of its own that is gone afterwards.
#
#   tests/servers.sh install              what is missing, with apt-get
#   eval "$(tests/servers.sh start DIR)"  starts what there is; says where on stdout, and on stderr what there is not
#   tests/servers.sh start DIR postgres   one server alone: postgres or mariadb
#   tests/servers.sh crash DIR postgres   ends it as a power cut would, and starts it again on the same port
#   tests/servers.sh stop DIR
#
# Commits are durable here as in production: a store must not pass its tests by losing less than it promised.
set -euo pipefail

main() {
    case "${1:-}" in
        install) install ;;
        start) start "${2:?a directory}" "${3:-}" ;;
        crash) "crash_${3:?postgres or mariadb}" "${2:?a directory}" ;;
        stop) stop "${2:?a directory}" ;;
        *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
}

install() {
    local missing=()
    [[ -n $(postgres_bin) ]] || missing+=(postgresql)
    command -v mariadbd >/dev/null || missing+=(mariadb-server)
    command -v pgbouncer >/dev/null || missing+=(pgbouncer)
    command -v openssl >/dev/null || missing+=(openssl)
    # A server that speaks German needs its locale.
    [[ -e /usr/share/i18n/locales/de_DE ]] || missing+=(locales)
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
    local dir=$1 alone=$2
    mkdir -p "$dir"
    # The servers run as somebody else, who must get to their files.
    chmod 755 "$dir"
    if [[ -n $alone ]]; then "start_$alone" "$dir"; return; fi
    if command -v openssl >/dev/null; then make_certificates "$dir"; else echo "no OpenSSL: tests with TLS are left out" >&2; fi
    if [[ -n $(postgres_bin) ]]; then
        start_postgres "$dir"
        if command -v pgbouncer >/dev/null; then start_pgbouncer "$dir"; else echo "no PgBouncer: its test is left out" >&2; fi
    else
        echo "no PostgreSQL: its tests are left out" >&2
    fi
    if command -v mariadbd >/dev/null; then start_mariadb "$dir"; else echo "no MariaDB: its tests are left out" >&2; fi
}

# An authority, a certificate of its for the servers, and an authority that has nothing to do with them.
make_certificates() {
    local dir=$1/tls name
    mkdir "$dir"
    for name in ca other_ca; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=test $name" \
            -addext keyUsage=critical,keyCertSign -keyout "$dir/$name.key" -out "$dir/$name.pem" 2>>"$dir/log"
    done
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=localhost" \
        -keyout "$dir/server.key" -out "$dir/server.csr" 2>>"$dir/log"
    openssl x509 -req -in "$dir/server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=IP:127.0.0.1,DNS:localhost") -out "$dir/server.pem" 2>>"$dir/log"
    echo "export COUNTERSIGN_TEST_TLS_CA=$dir/ca.pem"
    echo "export COUNTERSIGN_TEST_TLS_OTHER_CA=$dir/other_ca.pem"
}

# The certificate, for the one who may read it.
give_certificate() {
    cp "$1/tls/server.key" "$1/tls/server.pem" "$2"
    chmod 600 "$2/server.key"
    owned "$2/server.key" "$3"
    owned "$2/server.pem" "$3"
}

start_postgres() {
    local data=$1/postgres bin port locale=de_DE.UTF-8
    bin=$(postgres_bin) port=$(free_port)
    mkdir "$data"
    owned "$data" postgres
    as postgres "$bin/initdb" --pgdata "$data/data" --username postgres --auth trust --encoding UTF8 --locale C.UTF-8 >"$1/initdb.log"
    if [[ -d $1/tls ]]; then cp -a "$data" "$data-tls"; fi
    localedef --no-archive -i de_DE -f UTF-8 "$data/$locale" >&2 || echo "no German locale: a test is left out" >&2
    LOCPATH=$data as postgres "$bin/pg_ctl" --pgdata "$data/data" --log "$data/log" --wait start --options \
        "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$data -c max_connections=400 -c fsync=on -c synchronous_commit=on" >&2
    echo "$port" >"$1/postgres.port"
    echo "export COUNTERSIGN_TEST_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres"
    if [[ -d $1/tls ]]; then start_postgres_with_tls "$1" "$bin"; fi
}

crash_postgres() {
    # With the options that it was started with.
    as postgres "$(postgres_bin)/pg_ctl" --pgdata "$1/postgres/data" --log "$1/postgres/log" --wait --mode immediate restart >&2
}

# Refuses whoever comes without.
start_postgres_with_tls() {
    local data=$1/postgres-tls port
    port=$(free_port)
    give_certificate "$1" "$data" postgres
    echo "hostssl all all 127.0.0.1/32 trust" >"$data/data/pg_hba.conf"
    as postgres "$2/pg_ctl" --pgdata "$data/data" --log "$data/log" --wait start --options \
        "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$data -c shared_buffers=16MB -c ssl=on -c ssl_cert_file=$data/server.pem -c ssl_key_file=$data/server.key" >&2
    echo "export COUNTERSIGN_TEST_TLS_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres"
}

start_pgbouncer() {
    local data=$1/pgbouncer postgres port
    postgres=$(<"$1/postgres.port") port=$(free_port)
    mkdir "$data"
    cat >"$data/pgbouncer.ini" <<INI
[databases]
* = host=127.0.0.1 port=$postgres user=postgres
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
    local data=$1/mariadb
    mkdir "$data"
    owned "$data" mysql
    as mysql mariadb-install-db --no-defaults --datadir="$data/data" --auth-root-authentication-method=normal --skip-test-db >"$1/mariadb-install.log" 2>&1
    if [[ -d $1/tls ]]; then cp -a "$data" "$data-tls"; fi
    free_port >"$1/mariadb.port"
    run_mariadb "$data" "$(<"$1/mariadb.port")" "${MARIADB_SETTINGS[@]}"
    tell_mariadb "$data" "$(<"$1/mariadb.port")" MYSQL
    # Refuses whoever comes without.
    if [[ -d $1/tls ]]; then
        give_certificate "$1" "$data-tls" mysql
        free_port >"$1/mariadb-tls.port"
        run_mariadb "$data-tls" "$(<"$1/mariadb-tls.port")" --innodb-buffer-pool-size=16M --require-secure-transport=ON \
            --ssl-cert="$data-tls/server.pem" --ssl-key="$data-tls/server.key"
        tell_mariadb "$data-tls" "$(<"$1/mariadb-tls.port")" TLS_MYSQL
    fi
}

MARIADB_SETTINGS=(--max-connections=400 --innodb-flush-log-at-trx-commit=1)

# In this directory, on this port, with these settings.
run_mariadb() {
    local data=$1 port=$2 tries=0
    shift 2
    # Its output goes to its log: whoever reads ours need not wait for its end.
    as mysql mariadbd --no-defaults --datadir="$data/data" --socket="$data/socket" --pid-file="$data/pid" \
        --bind-address=127.0.0.1 --port="$port" "$@" >>"$data/log" 2>&1 &
    until mariadb-admin --no-defaults --socket="$data/socket" --user=root ping >/dev/null 2>&1; do
        if ((++tries > 300)); then cat "$data/log" >&2; return 1; fi
        sleep 0.1
    done
}

# Makes a user, and says under this name where the server is.
tell_mariadb() {
    local data=$1 port=$2 name=$3
    mariadb --no-defaults --socket="$data/socket" --user=root <<<"
        CREATE USER countersign@'127.0.0.1'; GRANT ALL ON *.* TO countersign@'127.0.0.1';
        CREATE USER countersign@localhost; GRANT ALL ON *.* TO countersign@localhost;" >&2
    echo "export COUNTERSIGN_TEST_$name=mysql://countersign@127.0.0.1:$port"
}

crash_mariadb() {
    local pid
    pid=$(<"$1/mariadb/pid")
    kill -KILL "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    run_mariadb "$1/mariadb" "$(<"$1/mariadb.port")" "${MARIADB_SETTINGS[@]}"
}

stop() {
    local dir=$1 pid data
    if [[ -f $dir/pgbouncer/pid ]]; then kill "$(<"$dir/pgbouncer/pid")" || true; fi
    for data in "$dir"/mariadb*; do
        if [[ -f $data/pid ]]; then
            pid=$(<"$data/pid")
            kill "$pid" || true
            while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        fi
    done
    for data in "$dir"/postgres*/data; do
        if [[ -f $data/postmaster.pid ]]; then
            as postgres "$(postgres_bin)/pg_ctl" --pgdata "$data" --mode immediate stop >/dev/null || true
        fi
    done
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
