"""The YAML of a report with the line of each part, so that every mistake is told with its place.

What stands in the file is taken as text, and read as the command line reads it: `on` is a column, and 1e-6 a number, whatever
YAML makes of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.suggestions import did_you_mean, nearest

_NULLS = ("", "~", "null", "Null", "NULL")


class MistakeError(ParameterError):
    """What is wrong in the file, on which line: one line of text."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A part of the file: what it is called in it, and where it begins."""

    path: str
    name: str
    line: int
    yaml: Any

    def refuse(self, words: str) -> NoReturn:
        """Tell what is wrong with it."""
        raise mistake(self.path, self.line, f"{self.name} {words}" if self.name else words)

    def text(self) -> str:
        """Its one value, as it is written."""
        self.refuse_nothing()
        if self.yaml.id != "scalar":
            self.refuse(f"must be one value, got {self._kind()}")
        return str(self.yaml.value).strip()

    def texts(self) -> tuple[str, ...]:
        """Its values: one, or a list of them."""
        if self.yaml.id != "sequence":
            return (self.text(),)
        if not self.yaml.value:
            self.refuse("is an empty list: give a value, or leave the line out")
        return tuple(each.text() for each in self.listed())

    def listed(self) -> Iterator[Node]:
        """The parts of a list."""
        for each in self.yaml.value:
            yield dataclasses.replace(self, name=f"each of {self.name}", line=_line(each), yaml=each)

    def parts(self, inside: str | None = None) -> dict[str, Node]:
        """The parts of a mapping by their keys; `inside` begins what they are called. Keys come once."""
        self.refuse_nothing()
        if self.yaml.id != "mapping":
            self.refuse(f"must be a mapping of names to values, got {self._kind()}")
        begin = f"{self.name}." if inside is None else inside
        found: dict[str, Node] = {}
        for key, value in self.yaml.value:
            if key.id != "scalar":
                raise mistake(self.path, _line(key), f"a key must be one word, got {_kind(key)}")
            name = str(key.value)
            if key.tag.endswith(":merge"):
                raise mistake(self.path, _line(key), "<< is not for reports: what releases share stands in defaults")
            if name in found:
                raise mistake(self.path, _line(key), f"{begin}{name} is given twice, first in line {found[name].line}")
            found[name] = Node(self.path, begin + name, _line(key), value)
        return found

    def refuse_unknown(self, found: Iterable[str], known: Iterable[str]) -> None:
        """Refuse a key that there is not, with the one that was probably meant; dashes stand for underscores."""
        names, lines = [*known], {str(key.value): _line(key) for key, _ in self.yaml.value}
        for name in found:
            if name.replace("-", "_") not in names:
                near = (
                    did_you_mean(nearest(name, names))
                    or f"give {'some' if len(names) > 1 else 'one'} of {', '.join(names)}"
                )
                of = f"{self.name}: " if self.name else ""
                raise mistake(self.path, lines[name], f"{of}unknown key {name!r}; {near}")

    def is_mapping(self) -> bool:
        """Whether it holds names with values."""
        return bool(self.yaml.id == "mapping")

    def is_list(self) -> bool:
        """Whether it holds several values."""
        return bool(self.yaml.id == "sequence")

    def refuse_nothing(self) -> None:
        """Refuse a key with nothing behind it."""
        if self.yaml.id == "scalar" and self.yaml.style is None and self.yaml.value in _NULLS:
            self.refuse("has no value: give one, or leave the line out")

    def _kind(self) -> str:
        return _kind(self.yaml)


def mistake(path: str, line: int, words: str) -> MistakeError:
    """A mistake with its place."""
    return MistakeError(f"{path}:{line}: {' '.join(words.split())}")


def read_yaml(path: str, text: str) -> Node:
    """The whole file as one part; refuses what is no YAML, or more than one document of it."""
    import yaml

    try:
        found = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise mistake(path, line, "a character that no YAML may hold: take it out") from None
    except yaml.MarkedYAMLError as error:
        unclosed = "quoted scalar" in str(error.context)
        mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
        raise mistake(path, 1 if mark is None else mark.line + 1, _syntax(str(error.problem), text, mark)) from None
    except RecursionError:
        raise mistake(path, 1, "parts within parts, deeper than any report has them") from None
    if found is None:
        raise mistake(path, 1, "the file is empty: give data, output and releases")
    return Node(path, "", _line(found), found)


def _syntax(problem: str, text: str, mark: Any) -> str:
    """What is wrong with the YAML, in the words of somebody who writes it."""
    lines = text.splitlines()
    if "\\t" in problem or (mark is not None and mark.line < len(lines) and "\t" in _indent(lines[mark.line])):
        return "a tab in the indentation: YAML takes spaces alone"
    if "mapping values are not allowed" in problem:
        return "a colon where none may be: put a text that holds ': ' in quotes"
    if "expected a single document" in problem or "but found another document" in problem:
        return "a second document begins: a report is one"
    return f"this is no YAML: {problem}"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: Any) -> str:
    return {"scalar": "one value", "sequence": "a list", "mapping": "a mapping"}[node.id]
