"""The packages: `headcount` is the folder of that name, and the three others are installed inside it. And the version.

A commit with a tag has its version: v0.1.0 is 0.1.0. Every other has that of the next tag with .dev0, however many commits lie
between: the version stands in every report, and a commit is no new version. All else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup

TOPS = ("mechanisms", "transforms", "pipelines")
FOLDERS = [path.parent.parts for top in ("headcount", *TOPS) for path in sorted(Path(top).rglob("__init__.py"))]
PACKAGES = {
    ".".join(folder if folder[0] == "headcount" else ("headcount", *folder)): "/".join(folder) for folder in FOLDERS
}
# The version where no tag is known: a clone without tags, a shallow one, a copy of the files. Above the last one released.
NO_TAGS = "0.1.0.dev0"
TEMPLATES = sorted(Path("pipelines/pages/templates").iterdir())


def version(found):
    """The version of what setuptools-scm found: the tag's, or the one that comes after it."""
    from setuptools_scm.version import guess_next_version

    return (
        found.format_with("{tag}") if found.exact else found.format_next_version(guess_next_version, "{guessed}.dev0")
    )


setup(
    use_scm_version={"version_scheme": version, "local_scheme": "no-local-version", "fallback_version": NO_TAGS},
    package_dir=PACKAGES,
    packages=[*PACKAGES],
    package_data={
        **{name: ["py.typed"] for name in (f"headcount.{top}" for top in TOPS)},
        "headcount": ["py.typed", "calls.pyi"],
        "headcount.pipelines.report_file": ["report.schema.json"],
        "headcount.pipelines.pages": [f"templates/{path.name}" for path in TEMPLATES],
    },
)
