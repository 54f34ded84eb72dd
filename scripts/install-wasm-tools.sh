#!/usr/bin/env bash
# Installs what rebuilds the WebAssembly guests, if it is missing: clang and lld for C, a rustc with
# the wasm32 target for Rust, npm for AssemblyScript. If all exist, it does nothing and needs no root.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

# rust_builds reports whether a rustc has the target.
rust_builds() {
	local compiler
	for compiler in "${RUSTC:-rustc}" /usr/bin/rustc; do
		command -v "$compiler" >/dev/null && [ -d "$("$compiler" --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ] && return 0
	done
	return 1
}

missing=()
command -v clang >/dev/null || missing+=(clang)
command -v wasm-ld >/dev/null || missing+=(lld)
command -v npm >/dev/null || missing+=(npm)
rust_builds || missing+=(rustc libstd-rust-dev-wasm32)
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

if command -v apt-get >/dev/null; then
	as_root apt-get update
	apt_install "${missing[@]}"
elif command -v brew >/dev/null; then
	echo "install-wasm-tools: brew install llvm lld node rustup" >&2
	brew install llvm lld node rustup
	rustup-init -y --no-modify-path --target wasm32-unknown-unknown
	echo "install-wasm-tools: brew does not put llvm into PATH: put \$(brew --prefix llvm)/bin before Apple's clang in PATH" >&2
else
	echo "install-wasm-tools: rebuilding the guests needs ${missing[*]} (Debian's names), and neither apt-get nor brew was found;" \
		"install them and run this again" >&2
	exit 1
fi
