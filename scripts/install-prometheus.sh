#!/usr/bin/env bash
# Installs promtool and prometheus, which the tests of deploy run, if they are missing: to /usr/local/bin, out of Debian's package.
# Installing the package itself would also start a server.
set -euo pipefail

command -v promtool >/dev/null && command -v prometheus >/dev/null && exit 0

if ! command -v apt-get >/dev/null; then
	echo "install-prometheus: promtool and prometheus are missing, and so is apt-get; install them and run this again" >&2
	exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${sudo[@]}" apt-get update
(cd "$dir" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .)
"${sudo[@]}" install -m 755 "$dir/usr/bin/promtool" "$dir/usr/bin/prometheus" /usr/local/bin/
