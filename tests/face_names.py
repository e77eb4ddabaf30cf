"""What a type checker sees of a package whose public names are imported on demand."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType


def typed_names(package: ModuleType) -> dict[str, str]:
    """{name: module} of what is imported where only type checkers look."""
    assert package.__file__ is not None
    return {
        alias.asname or alias.name: node.module or ""
        for block in ast.parse(Path(package.__file__).read_text()).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
