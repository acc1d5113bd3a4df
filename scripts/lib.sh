# shellcheck shell=bash
# For the scripts that need a server: a temporary folder, the user to run servers as, and a private server in it.
# To be sourced. However the script ends, no server and no folder stays behind.
set -euo pipefail
export LC_ALL=C

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bindir=$("${PG_CONFIG:-pg_config}" --bindir)

die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# --- the server's user

# PostgreSQL refuses to run as root
server_user=
if [ "$(id -u)" = 0 ]; then
    if id postgres >/dev/null 2>&1; then server_user=postgres; else server_user=nobody; fi
fi
change_user=()
if [ -n "$server_user" ]; then
    command -v setpriv >/dev/null || die "as root this needs setpriv (util-linux): try as an ordinary user"
    change_user=(setpriv --reuid="$server_user" --regid="$(id -g "$server_user")" --init-groups --)
fi

# Becomes a command of the server's user in the temporary folder, without anything in the environment that could lead
# it to another server (PGHOST) or change what it prints (RUST_BACKTRACE).
become() {
    local keep=() name
    for name in PERL5LIB LD_LIBRARY_PATH PG_TEST_TIMEOUT_DEFAULT PG_TEST_EXTRA ${!PG_LEASE_@}; do
        if [ -n "${!name:-}" ]; then keep+=("$name=${!name}"); fi
    done
    cd "$tmp"
    exec "${change_user[@]}" env -i "${keep[@]}" HOME="$tmp" TMPDIR="$tmp" LC_ALL=C PATH="$bindir:$PATH" \
        PGHOST="$tmp" PGUSER=postgres "$@"
}
as_server_user() { (become "$@"); }

# In the background and in a process group of its own, so that clean_up ends the whole of it.
spawn() {
    set -m
    "$@" </dev/null &
    set +m
}

# For what takes long: a signal to this script is heeded at once, not when the command is done.
attend() {
    spawn become "$@"
    wait "$!"
}

# --- the temporary folder

# TMPDIR if the server's user can get there and a socket's path does not get too long (it ends at 107 bytes), else /tmp
temp_parent=/tmp
if [ -n "${TMPDIR:-}" ] && [ ${#TMPDIR} -lt 50 ] && "${change_user[@]}" test -x "$TMPDIR" -a -r "$TMPDIR"; then
    temp_parent=$TMPDIR
fi
tmp=$(mktemp -d "$temp_parent/pg_lease.XXXXXX")

clean_up() {
    local group pidfile
    trap '' INT TERM HUP
    for group in $(jobs -p); do kill -- "-$group" 2>/dev/null || true; done
    # ours and those of tests that were cut short: all that run on data of this folder
    find "$tmp" -name postmaster.pid | while IFS= read -r pidfile; do
        as_server_user pg_ctl -D "${pidfile%/*}" -m immediate -s stop || true
    done
    rm -rf "$tmp"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -n "$server_user" ]; then chown "$server_user" "$tmp"; fi

# --- the server

server_program= # what to run instead of postgres

# Starts a server on $tmp/data that only listens on a socket in $tmp.
start_server() { # start_server [SETTINGS-FILE]
    as_server_user initdb -D data -U postgres -A trust -E UTF8 --no-locale --no-sync >"$tmp/initdb.log" ||
        { cat "$tmp/initdb.log" >&2; die "initdb failed"; }
    as_server_user tee -a data/postgresql.conf >/dev/null <"${1:-$top/regress/pg_lease.conf}"
    as_server_user tee -a data/postgresql.conf >/dev/null <<EOF
listen_addresses = ''
unix_socket_directories = '$tmp'
EOF
    as_server_user pg_ctl -D data -l server.log -w -s ${server_program:+-p "$server_program" -t 300} start || { cat "$tmp/server.log" >&2; die "the server does not start"; }
}

stop_server() { as_server_user pg_ctl -D data -m fast -w -s stop; }
