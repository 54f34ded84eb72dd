#!/usr/bin/env bash
# Builds the test guests: build.sh DIRECTORY [go|c|c2|docs|rust|sdk|assemblyscript|wat|lang-go|lang-c|lang-rust|lang-as|hostile]...
#
# The committed binaries were built with Go 1.26, clang and lld 14, Rust 1.95 with the targets
# wasm32-unknown-unknown and wasm32-wasip1, AssemblyScript 0.28.20 and wabt 1.0.32. Other versions
# produce other bytes with the same behaviour.
set -euo pipefail

out=$(cd "${1:?build.sh: the output directory is missing}" && pwd)
shift
cd "$(dirname "${BASH_SOURCE[0]}")"

build_go() {
	GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 "${GO:-go}" build -trimpath -buildvcs=false -buildmode=c-shared -ldflags='-s -w' -o "$out/go.wasm" ./go
}

# build_with_clang NAME SOURCE compiles and links in two steps, because clang would hand what it links
# to wasm-opt where that is installed, and the result would depend on it.
build_with_clang() {
	local object
	object=$(mktemp)
	clang --target=wasm32 -O2 -Wall -Werror -nostdlib -fno-builtin -I ../include -c -o "$object" -x c "$2"
	wasm-ld --no-entry --strip-all -o "$out/$1.wasm" "$object"
	rm "$object"
}

build_c() {
	build_with_clang c c/guest.c
}

build_c2() {
	build_with_clang c2 c/guest2.c
}

build_docs() {
	awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' ../ABI.md | build_with_clang docs -
}

build_rust() {
	rustc --target wasm32-unknown-unknown --edition 2021 --crate-type cdylib --crate-name guest -C opt-level=s -C panic=abort -C strip=symbols \
		-C target-feature=+bulk-memory -C link-arg=-zstack-size=65536 -D warnings -o "$out/rust.wasm" rust/guest.rs
}

build_sdk() {
	local target crates flags=()
	target=$(mktemp -d)
	cp -r sdk "$target/source" # cargo leaves a lock file
	cargo fetch --quiet --manifest-path "$target/source/Cargo.toml"
	for crates in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do # panic texts contain these paths
		flags+=("--remap-path-prefix=$crates=crates")
	done
	RUSTFLAGS="${flags[*]}" cargo build --quiet --release --target wasm32-wasip1 --manifest-path "$target/source/Cargo.toml" --target-dir "$target"
	cp "$target/wasm32-wasip1/release/sdk.wasm" "$out/sdk.wasm"
	rm -rf "$target"
}

build_assemblyscript() {
	local npm
	npm=$(mktemp -d)
	npm install --silent --no-audit --no-fund --prefix "$npm" assemblyscript@0.28.20
	"$npm/node_modules/.bin/asc" assemblyscript/guest.ts -O3s --runtime incremental --exportStart _initialize --outFile "$out/assemblyscript.wasm"
	rm -rf "$npm"
}

# The policy of wasm/LANGUAGES.md.

build_lang-go() {
	GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 "${GO:-go}" build -trimpath -buildvcs=false -buildmode=c-shared -ldflags='-s -w' -o "$out/lang-go.wasm" ./lang/go
}

build_lang-c() {
	build_with_clang lang-c lang/c/policy.c
}

# Debian's rustc comes with the target as a package; another one may not have it.
build_lang-rust() {
	local compiler lib
	for compiler in "${RUSTC:-rustc}" /usr/bin/rustc; do
		[ -d "$("$compiler" --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ] && break
	done
	lib=$(mktemp -d)
	"$compiler" --target wasm32-unknown-unknown --edition 2021 --crate-type rlib --crate-name reqlock_guest -C opt-level=s -C panic=abort \
		-D warnings --remap-path-prefix "$PWD=." -o "$lib/libreqlock_guest.rlib" ../guest-rust/src/lib.rs
	"$compiler" --target wasm32-unknown-unknown --edition 2021 --crate-type cdylib --crate-name policy -C opt-level=s -C panic=abort -C strip=symbols \
		-C link-arg=-zstack-size=65536 -D warnings --extern "reqlock_guest=$lib/libreqlock_guest.rlib" -o "$out/lang-rust.wasm" lang/rust/src/lib.rs
	rm -rf "$lib"
}

build_lang-as() {
	local npm
	npm=$(mktemp -d)
	npm install --silent --no-audit --no-fund --install-links --prefix "$npm" assemblyscript@0.28.20 ../guest-as
	cp lang/assemblyscript/policy.ts "$npm/"
	(cd "$npm" && node_modules/.bin/asc policy.ts -O3s --runtime incremental --exportStart _initialize --outFile policy.wasm)
	mv "$npm/policy.wasm" "$out/lang-as.wasm"
	rm -rf "$npm"
}

build_wat() {
	local source
	for source in wat/*.wat; do
		wat2wasm -o "$out/$(basename "$source" .wat | sed s/^guest$/wat/).wasm" "$source"
	done
}

build_hostile() {
	local source
	mkdir -p "$out/hostile"
	for source in hostile/*.wat; do
		wat2wasm -o "$out/hostile/$(basename "$source" .wat).wasm" "$source"
	done
	chmod 644 "$out"/hostile/*.wasm
}

[ $# -gt 0 ] || set -- go c c2 docs rust sdk assemblyscript wat lang-c lang-rust lang-as hostile
for guest in "$@"; do
	"build_$guest"
	find "$out" -maxdepth 1 -name "*.wasm" -exec chmod 644 {} +
done
