#!/usr/bin/env bash
# Installs the additional tools of the Redisson tests if they are missing: a JDK 17 or newer, and
# Maven. If both exist, it does nothing and needs no root.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

missing=()
# A JRE is not enough: make interop compiles the peer.
version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p' || true)
[ "${version:-0}" -ge 17 ] || missing+=(openjdk-17-jdk-headless)
command -v mvn >/dev/null || missing+=(maven)
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

if command -v apt-get >/dev/null; then
	as_root apt-get update
	# Newer releases have only a newer JDK.
	[ -n "$(apt-cache madison openjdk-17-jdk-headless)" ] || missing=("${missing[@]/openjdk-17-jdk-headless/default-jdk-headless}")
	apt_install "${missing[@]}"
elif command -v brew >/dev/null; then
	echo "install-interop-tools: brew install openjdk maven" >&2
	brew install openjdk maven
else
	echo "install-interop-tools: the tests against Redisson need ${missing[*]} (Debian's names), and neither apt-get nor brew was" \
		"found; install them and run this again" >&2
	exit 1
fi
