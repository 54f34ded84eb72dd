#!/usr/bin/env bash
# Installs what the tests need beside Go, where it is missing: redis-server, a C compiler for the race detector, and a browser.
# Does nothing, and needs no rights, where all are there.
set -euo pipefail

missing=()

# needs COMMAND APT-PACKAGES: notes what to install when there is no such command.
needs() {
	command -v "$1" >/dev/null || missing+=("${@:2}")
}

if [ -z "${REQLOCK_REDIS_SERVER:-}" ]; then # else the tests use that one
	needs redis-server redis-server
fi
if ! command -v google-chrome chromium-browser >/dev/null; then # examples/payments is looked at in a browser
	needs chromium chromium
fi
if [ "$(uname -s)" = Linux ]; then # elsewhere the race detector needs no compiler
	compiler=$("${GO:-go}" env CC)
	needs "${compiler%% *}" gcc libc6-dev
fi
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "install-test-tools: neither root nor sudo; run as root: $*" >&2
		exit 1
	fi
}

if command -v apt-get >/dev/null; then
	echo "install-test-tools: apt-get install ${missing[*]}" >&2
	as_root apt-get update
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
elif command -v brew >/dev/null; then
	echo "install-test-tools: brew install redis" >&2
	brew install redis
else
	echo "install-test-tools: the tests need ${missing[*]} (Debian's names), and there is neither apt-get nor brew to install" \
		"them with; install them and run this again" >&2
	exit 1
fi
