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
mac_chrome='/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'
if ! command -v google-chrome chromium-browser "$mac_chrome" >/dev/null; then # examples/payments is looked at in a browser
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
	as_root apt-get update
	# Ubuntu's has another name.
	[ -n "$(apt-cache madison chromium)" ] || missing=("${missing[@]/%chromium/chromium-browser}")
	echo "install-test-tools: apt-get install ${missing[*]}" >&2
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
elif command -v brew >/dev/null; then
	for package in "${missing[@]}"; do
		case $package in
		redis-server) brew install redis ;;
		chromium) brew install --cask google-chrome ;;
		esac
	done
else
	echo "install-test-tools: the tests need ${missing[*]} (Debian's names), and there is neither apt-get nor brew to install" \
		"them with; install them and run this again" >&2
	exit 1
fi
