#!/usr/bin/env bash
# Installs what the tests of deploy run, if it is missing: promtool and prometheus to /usr/local/bin, out of Debian's package, and curl
# and jq. Installing the package of Prometheus itself would also start a server.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

command -v promtool >/dev/null && command -v prometheus >/dev/null && command -v curl >/dev/null && command -v jq >/dev/null && exit 0

if ! command -v apt-get >/dev/null; then
	echo "install-prometheus: promtool, prometheus, curl or jq is missing, and so is apt-get; install them and run this again" >&2
	exit 1
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
as_root apt-get update
apt_install curl jq
(cd "$dir" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .)
as_root install -m 755 "$dir/usr/bin/promtool" "$dir/usr/bin/prometheus" /usr/local/bin/
