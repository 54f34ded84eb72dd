"""Turns links of docs/ to other files of the repository into links to the forge, and fails on dead ones. On the pages of
options, each option is a link to itself: options.html#core.Options.WatchdogTimeout."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/reqlock/reqlock/blob/main/"
LINK = re.compile(r"\]\((\.\./[^)#]+)(#[^)]*)?\)")
OPTION = re.compile(r"^(## .*?`([^`]+)`|\| `(\w+)` \|)", re.MULTILINE)


def on_page_markdown(markdown, page, **_):
    def link(match):
        path, anchor = match.group(1), match.group(2) or ""
        target = (ROOT / "docs" / page.file.src_uri).parent.joinpath(path).resolve()
        if not target.exists():
            raise SystemExit(f"docs/{page.file.src_uri}: dead link to {path}")
        if target.is_relative_to(ROOT / "docs"):
            return match.group(0)
        return f"]({REPOSITORY}{target.relative_to(ROOT)}{anchor})"

    of = ""

    def option(match):
        nonlocal of
        if match.group(2):
            of = match.group(2)
            return match.group(0)
        anchor = f"{of}.{match.group(3)}"
        return f'| <a id="{anchor}" href="#{anchor}"><code>{match.group(3)}</code></a> |'

    if page.file.src_uri.endswith("options.md"):
        markdown = OPTION.sub(option, markdown)
    return LINK.sub(link, markdown)
