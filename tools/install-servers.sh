#!/bin/sh
# Installs the servers and the browser that tests start for themselves, where that is possible: on Debian or Ubuntu, as root.
# Elsewhere it says what is missing; the tests that need it are then skipped by name (and fail where CI=true).
set -eu

missing=""
command -v redis-server >/dev/null 2>&1 && command -v redis-sentinel >/dev/null 2>&1 || missing="$missing redis-server redis-sentinel"
command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v tarantool >/dev/null 2>&1 || missing="$missing tarantool"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing (their tests will be skipped; to run them, install these packages)"
    exit 0
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# The packages would start a server of their own; the tests start private ones.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
# One by one: a package that this system does not have must not keep the others out.
for package in $missing; do
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null || echo "could not install $package"
done
