"""Packaging: `headcount` is the folder of that name, and the three others are installed inside it."""

from pathlib import Path

from setuptools import setup

TOPS = ("mechanisms", "transforms", "pipelines")
FOLDERS = [path.parent.parts for top in ("headcount", *TOPS) for path in sorted(Path(top).rglob("__init__.py"))]
PACKAGES = {
    ".".join(folder if folder[0] == "headcount" else ("headcount", *folder)): "/".join(folder) for folder in FOLDERS
}
TEMPLATES = sorted(Path("pipelines/pages/templates").iterdir())

setup(
    name="headcount",
    version="0.1.0",
    description="User-level differentially private counting at scale, on Apache Beam",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    package_dir=PACKAGES,
    packages=[*PACKAGES],
    package_data={
        **{name: ["py.typed"] for name in ("headcount", *(f"headcount.{top}" for top in TOPS))},
        "headcount.pipelines.pages": [f"templates/{path.name}" for path in TEMPLATES],
    },
    install_requires=[
        "apache-beam>=2.67,<3",
        "numpy>=2.0,<3",
        "scipy>=1.13,<2",
        "pyarrow>=18,<26",
        "fastavro>=1.9,<2",
        "cryptography>=42",
        "dp-accounting>=0.6,<0.7",
    ],
    extras_require={
        "gcp": ["apache-beam[gcp]", "google-cloud-secret-manager>=2.20,<3", "google-crc32c>=1.5,<2"],
        "aws": ["apache-beam[aws]"],
        "hadoop": ["apache-beam[hadoop]"],
        "yaml": ["apache-beam[yaml]"],
        "pandas": ["pandas>=2"],
        "plot": ["matplotlib>=3.8"],
        "report": ["Jinja2>=3.1,<4"],
        "ledger": ["sqlalchemy>=2.0,<3"],
        "postgres": ["sqlalchemy>=2.0,<3", "psycopg[binary]>=3.1,<4"],
    },
    entry_points={"console_scripts": ["headcount = headcount.pipelines.main:run"]},
)
