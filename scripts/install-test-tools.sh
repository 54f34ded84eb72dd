#!/usr/bin/env bash
# Installs the tools that the tests need besides Go, if they are missing: redis-server, a C compiler
# for the race detector, and a browser. If all exist, it does nothing and needs no root.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

missing=()

# needs COMMAND APT-PACKAGES: adds the packages if the command is missing.
needs() {
	command -v "$1" >/dev/null || missing+=("${@:2}")
}

if [ -z "${REQLOCK_REDIS_SERVER:-}" ]; then # otherwise the tests use that server
	needs redis-server redis-server
fi
mac_chrome='/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'
# The tests open examples/payments in a browser.
if ! command -v google-chrome chromium-browser "$mac_chrome" >/dev/null; then
	needs chromium chromium
fi
if [ "$(uname -s)" = Linux ]; then # on other systems the race detector needs no compiler
	compiler=$("${GO:-go}" env CC)
	needs "${compiler%% *}" gcc libc6-dev
fi
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

if command -v apt-get >/dev/null; then
	as_root apt-get update
	# Ubuntu uses another name.
	[ -n "$(apt-cache madison chromium)" ] || missing=("${missing[@]/%chromium/chromium-browser}")
	apt_install "${missing[@]}"
elif command -v brew >/dev/null; then
	for package in "${missing[@]}"; do
		case $package in
		redis-server) brew install redis ;;
		chromium) brew install --cask google-chrome ;;
		esac
	done
else
	echo "install-test-tools: the tests need ${missing[*]} (Debian's names), and neither apt-get nor brew was found;" \
		"install them and run this again" >&2
	exit 1
fi
