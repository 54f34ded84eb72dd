#!/usr/bin/env bash
# Installs clang and lld, which rebuild the WebAssembly guests in C, if they are missing. If both
# exist, it does nothing and needs no root.
set -euo pipefail

missing=()
command -v clang >/dev/null || missing+=(clang)
command -v wasm-ld >/dev/null || missing+=(lld)
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "install-wasm-tools: neither root nor sudo; run as root: $*" >&2
		exit 1
	fi
}

if command -v apt-get >/dev/null; then
	echo "install-wasm-tools: apt-get install ${missing[*]}" >&2
	as_root apt-get update
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
elif command -v brew >/dev/null; then
	echo "install-wasm-tools: brew install llvm lld" >&2
	brew install llvm lld
	echo "install-wasm-tools: brew does not put llvm into PATH: put \$(brew --prefix llvm)/bin before Apple's clang in PATH" >&2
else
	echo "install-wasm-tools: rebuilding the guests in C needs ${missing[*]} (Debian's names), and neither apt-get nor brew was" \
		"found; install them and run this again" >&2
	exit 1
fi
