#!/usr/bin/env bash
# Runs each fuzz target of the root module for FUZZTIME (20s), one after the other, and lists the
# failed ones. go test writes the input of a failure to testdata/fuzz of the package: commit it with
# the fix. Arguments are regular expressions of targets.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
time=${FUZZTIME:-20s}

failed=()
while read -r dir target; do
	if [ $# -gt 0 ] && ! grep -qE "$(IFS='|'; echo "$*")" <<<"$target"; then
		continue
	fi
	began=$SECONDS
	if output=$("$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" 2>&1 </dev/null); then
		echo "ok $target $((SECONDS - began))s $(grep -oE 'execs: [0-9]+' <<<"$output" | tail -1)"
	else
		echo "$output"
		failed+=("$target")
	fi
done < <("$go" list -f '{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}' ./... |
	grep . | xargs grep -HoE '^func Fuzz\w+' | sed -E 's|/[^/]*:func | |' | sort)

if [ ${#failed[@]} -gt 0 ]; then
	echo "failed: ${failed[*]}"
	exit 1
fi
