"""A hook of mkdocs: pages from outside docs/, and links that lead to the right place in the repository and in the site.

A page links to others as files of the repository, so that its links work where the repository is shown, too. The site
has no files outside docs/. So the pages there are taken into it, and a link to a module leads to its page of the API.
Nothing links to the repository's address: the site is complete by itself. A link to anything else fails the build.
"""

import logging
import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).parents[1]
FROM_OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "serving/README.md": "serving.md",
    "tpu/README.md": "tpu.md",
    "evidence/compilers/cycles.md": "tpu_cycles.md",
    "evidence/README.md": "evidence.md",
    "examples/README.md": "examples.md",
    "txl_tf/ready/fairy_tales/README.md": "fairy_tales.md",
    **{path: path for path in ("LICENSE", "CITATION.cff", "scripts/generate.py")},
    **{
        f"examples/{path}": f"examples/{path}"
        for pattern in ("*.[pi]*", "engines/*.py")
        for path in (found.relative_to(ROOT / "examples").as_posix() for found in (ROOT / "examples").glob(pattern))
    },
    **{
        f"evidence/{path.parent.name}/{path.name}": f"{path.parent.name}/{path.name}"
        for folder in ("studies", "lab")
        for path in (ROOT / "evidence" / folder).glob("*")
        if path.suffix in (".md", ".svg")
    },
}
"""Pages, their pictures and the files that they link to, by their place in the repository: their place in the site."""

LINK = re.compile(r"(?<=\]\()[^)\s:#]+(?=[)#])")
"""The file that a link or an image names; not an address with a scheme."""

CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)

LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^\s"'>]+)""")
"""A file that a page would load from another server."""


def on_startup(command, **_):
    """A build prints warnings alone. (mkdocs' own --quiet leaves warnings out, and then strict mode misses them.)"""
    if command == "build":
        logging.getLogger("mkdocs").setLevel(logging.WARNING)


def on_config(config):
    """Adds the pages of evidence/, as many as there are, to the navigation's section Evidence."""
    (evidence,) = (section["Evidence"] for section in config.nav if "Evidence" in section)
    for folder in ("studies", "lab"):
        pages = sorted((ROOT / "evidence" / folder).glob("*.md"), key=lambda path: (path.stem != "README", path.stem))
        evidence += [f"{path.parent.name}/{path.name}" for path in pages]
    return config


def on_files(files, config):
    """Takes the pages from outside docs/ into the site."""
    for path, place in FROM_OUTSIDE.items():
        kept = InclusionLevel.INCLUDED  # programs, too, which docs/ leaves out
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path), inclusion=kept))
    return files


def on_page_markdown(markdown, page, **_):
    """Translates the links of a page from places in the repository to places in the site."""
    outside = {place: path for path, place in FROM_OUTSIDE.items()}
    path = outside.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = CODE.split(markdown)  # text and code alternate

    def translate(match):
        place = in_site(posixpath.normpath(posixpath.join(posixpath.dirname(path), match[0])))
        return posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")

    return "".join(part if i % 2 else LINK.sub(translate, part) for i, part in enumerate(parts))


def in_site(path):
    """The place in the site of a file of the repository."""
    if re.fullmatch(r"txl_tf/.*\.py", path):
        return "api/" + re.sub(r"(__init__)?\.py$", lambda end: "index.md" if end[1] else ".md", path)
    return FROM_OUTSIDE.get(path, path.removeprefix("docs/"))


def on_post_page(output, page, **_):
    """Refuses a page that would load anything from another server: the site is read offline, too."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load {found[1]}: put a copy into docs/")
    return output
