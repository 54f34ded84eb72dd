#!/usr/bin/env bash
# Installs what the tests of deploy run, if it is missing: promtool and prometheus to /usr/local/bin, out of Debian's package, and curl
# and jq. Installing the package of Prometheus itself would also start a server.
set -euo pipefail

command -v promtool >/dev/null && command -v prometheus >/dev/null && command -v curl >/dev/null && command -v jq >/dev/null && exit 0

if ! command -v apt-get >/dev/null; then
	echo "install-prometheus: promtool, prometheus, curl or jq is missing, and so is apt-get; install them and run this again" >&2
	exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${sudo[@]}" apt-get update
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends curl jq
(cd "$dir" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .)
"${sudo[@]}" install -m 755 "$dir/usr/bin/promtool" "$dir/usr/bin/prometheus" /usr/local/bin/
