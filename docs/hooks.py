"""What mkdocs adds to the pages in docs/: commands from their parsers, the API's names, and pages that lie outside docs/.

Links of pages lead to files of the repository, so that they work where it is browsed. Here they are turned into links of the
site; what the site does not have, such as a source file, becomes its name alone. Formulas of proofs, which are between dollars,
become MathML, which every browser shows without a script.
"""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from typing import Any

import notebook_pages
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

from headcount.pipelines.command import COMMANDS, load
from headcount.pipelines.parser import Parser, make_parser
from headcount.pipelines.questions import GROUPS, PAPER_GROUPS

TOP = Path(__file__).resolve().parents[1]
OUTSIDE = {  # files beside docs/ that are pages of the site
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "benchmarks/README.md": "benchmarks.md",
}
FACES = {
    "headcount": "Calls on a frame, without Beam. Explained in [Calls in Python](../python.md).",
    "headcount.transforms": "Transforms for pipelines of Apache Beam. Explained in [Transforms for Beam](../embedding.md).",
    "headcount.mechanisms": "The mathematics, without Beam. Explained in [Transforms for Beam](../embedding.md).",
}
_FORMULA = re.compile(r"`[^`]*`|\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    made = {name: (TOP / path).read_text(encoding="utf-8") for path, name in OUTSIDE.items()}
    made |= {"commands.md": commands_page()}
    made |= {f"api/{face.removeprefix('headcount.')}.md": api_page(face) for face in FACES}
    made |= notebook_pages.pages(config.extra.get("repository"))
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links to files of the repository into links of the site."""
    name = page.file.src_uri
    if name == "index.md":
        page.meta["hide"] = ["navigation"]  # its only page: the chooser's commands get the room
    source = next((path for path, made in OUTSIDE.items() if made == name), f"docs/{name}")

    def link(found: re.Match[str]) -> str:
        picture, text, path, anchor = found.groups()
        target = (TOP / source).parent.joinpath(path).resolve()
        where = site_page(target)
        if where is None:
            return text
        up = "../" * name.count("/")
        return f"{picture}[{text}]({up}{where}{anchor or ''})"

    if name.startswith("proofs/"):
        markdown = _FORMULA.sub(formula, markdown)
    return _LINK.sub(link, markdown) if not name.startswith("api/") else markdown


def formula(found: re.Match[str]) -> str:
    """A formula between dollars as MathML; code stays as it is."""
    block, inline = found.groups()
    if block is None and inline is None:
        return found.group()
    made = convert(" ".join((block or inline).split()), display="inline" if block is None else "block")
    return made if inline is None else f"<span>{made}</span>"  # else a paragraph that begins with it would be cut


def site_page(target: Path) -> str | None:
    """The page or picture of the site for a file of the repository."""
    if target == TOP / "README.md":
        return "index.md"
    if target.is_relative_to(TOP / "docs") and target.suffix in (".md", ".svg", ".ipynb"):
        return re.sub(r"\.ipynb$", ".md", str(target.relative_to(TOP / "docs")))
    return OUTSIDE.get(str(target.relative_to(TOP))) if target.is_relative_to(TOP) else None


def commands_page() -> str:
    """Every command with its flags, as its parser has them."""
    parts = ["# Every command and flag", "", "Made from the parsers: what `headcount COMMAND --help-all` prints."]
    for heading, names in (GROUPS | PAPER_GROUPS).items():
        parts += ["", f"## {heading.capitalize()}"]
        for name in names.split():
            command = load(name)
            parser = make_parser(command)
            parts += ["", f"### `headcount {name}`", "", COMMANDS[name].help, "", *flags(parser)]
            parts += ["", "```console", *(f"  {command.example}".rstrip().replace("\n  ", "\n").split("\n")), "```"]
    return "\n".join(parts) + "\n"


def flags(parser: Parser) -> list[str]:
    """Tables of a parser's flags, by group; of its subcommands after each other."""
    lines: list[str] = []
    for title, actions in parser.sections():
        parts = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
        for part in parts:
            for name, inner in part.choices.items():
                lines += ["", f"**`{parser.prog} {name}`**", *flags(inner)]
        told = [action for action in actions if action not in parts and "--help" not in action.option_strings]
        told = [action for action in told if action.help is not argparse.SUPPRESS and action.dest != "help"]
        if told:
            lines += [
                "",
                f"| {title} | |",
                "|---|---|",
                *(f"| `{spelled(action)}` | {meant(parser, action)} |" for action in told),
            ]
    return lines


def spelled(action: argparse.Action) -> str:
    """A flag with what stands behind it."""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    return action.option_strings[-1] + (f" {value}" if action.nargs != 0 else "")


def meant(parser: Parser, action: argparse.Action) -> str:
    """What a flag means, without line breaks that a table cannot hold."""
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return re.sub(r"([|<*])", r"\\\1", " ".join(text.split()))


def api_page(face: str) -> str:
    """The public names of a package, each from its docstring."""
    names = importlib.import_module(face).__all__
    return "\n".join([f"# {face}", "", FACES[face], "", *(f"::: {face}.{name}\n" for name in sorted(names))])
