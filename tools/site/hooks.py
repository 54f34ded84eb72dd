"""Turns links of docs/ to other files of the repository into links to the forge, and fails on dead ones."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/reqlock/reqlock/blob/main/"
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown, page, **_):
    def link(match):
        path, anchor = match.group(1), match.group(2) or ""
        if not (ROOT / path).exists():
            raise SystemExit(f"docs/{page.file.src_uri}: dead link to ../{path}")
        return f"]({REPOSITORY}{path}{anchor})"

    return OUTSIDE.sub(link, markdown)
