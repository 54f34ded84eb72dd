"""Turns links of docs/ to other files of the repository into links to the forge, and fails on dead ones."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/reqlock/reqlock/blob/main/"
LINK = re.compile(r"\]\((\.\./[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown, page, **_):
    def link(match):
        path, anchor = match.group(1), match.group(2) or ""
        target = (ROOT / "docs" / page.file.src_uri).parent.joinpath(path).resolve()
        if not target.exists():
            raise SystemExit(f"docs/{page.file.src_uri}: dead link to {path}")
        if target.is_relative_to(ROOT / "docs"):
            return match.group(0)
        return f"]({REPOSITORY}{target.relative_to(ROOT)}{anchor})"

    return LINK.sub(link, markdown)
