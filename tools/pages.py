"""What `make docs` does beside MkDocs: the navigation, the sources that pages link, and pictures as tables.

A page is found by a question: `docs/index.md` has a table of questions under each of its headings, and the navigation
is made from it. So a new page needs one row there and nothing else; one without a row stops the build.

Pages link examples and other files of the tree, as one reads them there. A site has no tree around it: what is linked
becomes a page of its own. Flow charts are drawn where Mermaid is; a site that fetches nothing has them as tables.
"""

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.pages")  # a warning stops the build
ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r"\]\(\.\./([\w./-]+)\)")
_CHART = re.compile(r"```mermaid\nflowchart \w+\n(.*?)```", re.DOTALL)
_BOX = re.compile(r'^\s*(\w+)\["(.+)"\]$', re.MULTILINE)
_ARROW = re.compile(r"^\s*(\w+) -->\|(.+)\| (\w+)$", re.MULTILINE)
_FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(https?://[^\"'\s>]+)", re.IGNORECASE
)
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sh": "sh", ".java": "java"}


def navigation(index: str) -> dict[str, list[str]]:
    """The headings of the list of questions, each with its pages; a page is where it is named first."""
    sections: dict[str, list[str]] = {}
    named: set[str] = set()
    for part in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        pages = [page for row in rows for page in re.findall(r"\]\(([\w/-]+\.md)\)", row) if page not in named]
        named.update(pages)
        if pages:
            sections[heading] = list(dict.fromkeys(pages))
    return sections


def on_config(config: "MkDocsConfig") -> None:
    index = Path(config.docs_dir, "index.md").read_text("utf-8")
    config.nav = ["index.md", *({heading: pages} for heading, pages in navigation(index).items())]


def on_files(files: "Files", config: "MkDocsConfig") -> None:
    """Add a page for every file of the tree that a page links."""
    from mkdocs.structure.files import File, InclusionLevel

    wanted = {
        path
        for file in files.documentation_pages()
        for path in OUTSIDE.findall(Path(str(file.abs_src_path)).read_text("utf-8"))
    }
    for path in sorted(wanted):
        if (ROOT / path).exists():  # otherwise MkDocs says which link leads nowhere
            added = File.generated(config, f"tree/{path.strip('/')}.md", content=_source_page(path.strip("/")))
            files.append(added)
            added.inclusion = InclusionLevel.NOT_IN_NAV


def _source_page(path: str) -> str:
    place = ROOT / path
    if place.is_dir():
        return f"# {path}\n\n" + "\n".join(_listed(file) for file in sorted(place.iterdir()) if file.is_file())
    text = place.read_text("utf-8")
    # Its own links are not the site's.
    return re.sub(r"\[([^\]]+)\]\((?!http)[^)]+\)", r"\1", text) if place.suffix == ".md" else _listed(place, "#")


def _listed(file: Path, heading: str = "##") -> str:
    text = file.read_text("utf-8")
    fence = "`" * 4
    return f"{heading} {file.relative_to(ROOT)}\n\n{fence}{_LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"


def on_page_markdown(markdown: str, *, page: "Page", **_: Any) -> str:
    if page.file.src_uri.startswith("tree/"):
        return markdown
    linked = OUTSIDE.sub(lambda found: f"](tree/{found[1].strip('/')}.md)", markdown)
    return _CHART.sub(lambda found: _arrows(found[1]), linked)


def on_post_page(output: str, *, page: "Page", **_: Any) -> str:
    for address in _FETCHED.findall(output):
        log.warning("Page '%s' would fetch %s from elsewhere when it is read.", page.file.src_uri, address)
    return output


def _arrows(chart: str) -> str:
    names = dict(_BOX.findall(chart))
    rows = [f"| `{names[begin]}` | `{call}` | `{names[end]}` |" for begin, call, end in _ARROW.findall(chart)]
    return "\n".join(["| from | calls | in |", "|---|---|---|", *rows, ""])
