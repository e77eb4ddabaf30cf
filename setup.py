"""The packages: `headcount` is the folder of that name, and the three others are installed inside it.

All else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup

TOPS = ("mechanisms", "transforms", "pipelines")
FOLDERS = [path.parent.parts for top in ("headcount", *TOPS) for path in sorted(Path(top).rglob("__init__.py"))]
PACKAGES = {
    ".".join(folder if folder[0] == "headcount" else ("headcount", *folder)): "/".join(folder) for folder in FOLDERS
}
TEMPLATES = sorted(Path("pipelines/pages/templates").iterdir())

setup(
    package_dir=PACKAGES,
    packages=[*PACKAGES],
    package_data={
        **{name: ["py.typed"] for name in (f"headcount.{top}" for top in TOPS)},
        "headcount": ["py.typed", "calls.pyi"],
        "headcount.pipelines.report_file": ["report.schema.json"],
        "headcount.pipelines.pages": [f"templates/{path.name}" for path in TEMPLATES],
    },
)
