#!/usr/bin/env bash
# Installs Postgres for the test of examples/recipes/pgx, if it is missing. The test starts a server of its own.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

# Debian does not put the server into PATH.
if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
	exit 0
fi
if command -v apt-get >/dev/null; then
	as_root apt-get update
	apt_install postgresql
elif command -v brew >/dev/null; then
	brew install postgresql
else
	echo "install-postgres: Postgres is missing, and neither apt-get nor brew was found; install it and run this again" >&2
	exit 1
fi
