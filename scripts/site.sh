#!/usr/bin/env bash
# Builds docs/ as a site in site/, with mkdocs-material in an environment of its own (.site). It fails
# on dead links and on pages that the navigation lacks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/apt.sh

needed=$(cat tools/site/requirements.txt)
if [ "$(cat .site/installed 2>/dev/null || true)" != "$needed" ]; then
	rm -rf .site
	if ! python3 -m venv .site 2>/dev/null; then # Debian and Ubuntu have venv in a package
		rm -rf .site
		as_root apt-get update
		apt_install python3-venv
		python3 -m venv .site
	fi
	.site/bin/pip install --quiet --disable-pip-version-check -r tools/site/requirements.txt
	echo "$needed" >.site/installed
fi
# Not --quiet: then mkdocs does not count the warnings for which --strict fails.
export NO_MKDOCS_2_WARNING=1
if ! log=$(.site/bin/mkdocs build --strict 2>&1); then
	grep -vE '^(INFO|$)' <<<"$log" >&2
	exit 1
fi
echo "$(find site -name '*.html' | wc -l) pages; open site/index.html, or serve site/ to search"
