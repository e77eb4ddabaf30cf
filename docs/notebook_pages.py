"""Notebooks as pages of the site: run from top to bottom in a kernel of their own, with what each cell gave below it.

Notebooks are kept without outputs, so that a change of one reads well, and no page shows what the code of today does not give.
Keys and ids follow from a number here, so that the same notebook gives the same page.
"""

from __future__ import annotations

import functools
import html
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent / "notebooks"
_SECONDS = 300  # that a cell may take on a machine that does much else
_FIXED = """
def _fixed():
    import hashlib, itertools, secrets
    number = itertools.count()
    secrets.token_hex = lambda size: hashlib.blake2b(b"%d" % next(number), digest_size=size).hexdigest()
_fixed()
del _fixed
"""
_FRAME = re.compile(
    r"<style scoped>.*?</style>\s*<table[^>]*>", re.DOTALL
)  # of pandas, whose tables are the site's here
_SHELL = re.compile(r"^[!%]", re.MULTILINE)


def notebooks() -> list[Path]:
    """All notebooks, by their names."""
    return sorted(FOLDER.glob("*.ipynb"))


def pages(repository: str | None) -> dict[str, str]:
    """The page of each notebook as Markdown, by its name on the site; `repository` is owner/name on GitHub, if known."""
    paths = notebooks()
    with ThreadPoolExecutor(2) as pool:
        ran = [*pool.map(lambda path: _executed(path.read_text(encoding="utf-8")), paths)]
    return {
        f"notebooks/{path.stem}.md": page(path.name, made, repository) for path, made in zip(paths, ran, strict=True)
    }


@functools.cache
def _executed(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return executed(nbformat.reads(text, 4), Path(folder))


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook with its outputs, run in an empty folder; raises what a cell raises."""
    startup = folder / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-fixed.py").write_text(_FIXED)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # for lines of the shell
    env = os.environ | {"IPYTHONDIR": str(folder / ".ipython"), "PATH": path}
    client = NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.extra_arguments = ["--log-level=ERROR"]  # a warning that the kernel listens on this machine
    client.execute(env=env)
    return notebook


def page(name: str, notebook: Any, repository: str | None) -> str:
    """A notebook that was run, as Markdown: below its title, how to get it; below each cell, what that gave."""
    first, *cells = notebook.cells
    title, _, rest = first.source.partition("\n")
    return "\n\n".join(
        [title, _opened(name, repository), rest.strip(), *(text for cell in cells for text in _cell(cell))]
    )


def _opened(name: str, repository: str | None) -> str:
    """The file, and where the repository is known, a badge that opens the notebook ready to run, on mybinder.org."""
    links = [f'<a class="md-button" href="{name}" download>Download the notebook</a>']
    if repository:
        address = f"https://mybinder.org/v2/gh/{repository}/HEAD?labpath=docs%2Fnotebooks%2F{name}"
        links.insert(0, f'<a class="md-button md-button--primary" href="{html.escape(address)}">Open in Binder</a>')
    return f"<p>{' '.join(links)}</p>"


def _cell(cell: Any) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield _fenced("ipython3" if _SHELL.search(cell.source) else "python", cell.source)
    for output in cell.outputs:
        yield _output(output, cell.metadata.get("alt", ""))


def _output(output: Any, alt: str) -> str:
    if output.output_type == "stream":
        return _fenced("text", output.text)
    data = output.data
    if "text/html" in data:
        frame = _FRAME.sub("<table>", _joined(data["text/html"]))
        return f'<div class="given">\n{frame}\n</div>'
    if "image/png" in data:
        content = _joined(data["image/png"]).replace("\n", "")
        return f'<p><img alt="{html.escape(alt)}" src="data:image/png;base64,{content}"></p>'
    return _fenced("text", _joined(data["text/plain"])) if "text/plain" in data else ""  # a script has nothing to show


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
