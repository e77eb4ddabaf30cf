"""The layout of the house: arrows point down, rooms stay small, and only three faces are public.

Mechanisms have floors, and above them families, which know each other only where a family is built on another. Transforms stand
on mechanisms, pipelines on both, and the calls of `headcount` on pipelines, without their transforms. In none of the four do
packages import each other in a circle.
"""

from __future__ import annotations

import ast
import functools
import graphlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
FLOORS = ("accounting", "calibration", "randomness", "batches", "columns", "domains", "bounding", "choice", "counting")
FAMILIES = {
    "histogram": {"bound_choice", "partitions"},
    "bound_choice": set(),
    "sampled": {"bound_choice"},
    "shape": {"partitions"},
    "count_release": {"partitions", "bound_choice"},
    "distribution": set(),
    "partitions": set(),
    "levels": {"histogram", "partitions", "bound_choice"},
    "people": {"partitions"},
    "aggregate": {"levels", "histogram", "partitions", "bound_choice"},
}
# From the bottom, too: a job is planned and told before it runs, and commands stand on all of it.
ROOMS_OF_PIPELINES = (
    "storage",
    "sinks",
    "sources",
    "flags",
    "reports",
    "ledger",
    "pages",
    "jobs",
    "streams",
    "in_memory",
    "studies",
    "audits",
    "over_time",
    "report_file",
    "commands",
)
PACKAGES = ("mechanisms", "transforms", "pipelines", "headcount")  # each may import those before it
FACES = ("mechanisms.__init__", "transforms.__init__")  # which name all that is public
MOST_MODULES, MOST_LINES = 15, 400

MODULES = {
    ".".join(path.relative_to(TOP).with_suffix("").parts): path
    for package in PACKAGES
    for path in sorted((TOP / package).rglob("*.py"))
}


def imports(text: str, module: str) -> Iterator[str]:
    """The modules of Headcount that a module imports anywhere, without the leading `headcount.`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{module} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] != "headcount":
                continue
            found = name.removeprefix("headcount.")
            if found.split(".")[0] not in PACKAGES[:-1]:  # of the folder of that name
                found = name
            while found and found not in MODULES and f"{found}.__init__" not in MODULES:
                found = found.rpartition(".")[0]
            if found:
                yield found


@functools.cache
def imported() -> dict[str, set[str]]:
    """What each module imports."""
    return {name: set(imports(path.read_text(), name)) for name, path in MODULES.items()}


def room(module: str) -> str | None:
    """The room of its package that a module lies in; None at the top of it (errors, checks, flags)."""
    parts = module.split(".")
    return parts[1] if f"{parts[0]}.{parts[1]}.__init__" in MODULES else None


def allowed(importer: str, imported: str) -> bool:
    """Whether one module may import another."""
    floor = {name: number for number, name in enumerate(PACKAGES)}
    if importer.split(".")[0] != imported.split(".")[0]:
        return floor[importer.split(".")[0]] > floor[imported.split(".")[0]]
    here, there = room(importer), room(imported)
    if here == there or there is None:
        return True
    if importer.startswith("pipelines."):
        return here is None or ROOMS_OF_PIPELINES.index(there) < ROOMS_OF_PIPELINES.index(here)
    if not importer.startswith("mechanisms."):
        return True  # circles of packages are found in all
    if here is None:
        # The public face names what lies anywhere, and the contract the types of what it promises.
        return importer == "mechanisms.__init__" or (importer == "mechanisms.mechanism" and there in FLOORS)
    if here in FLOORS:
        return there in FLOORS and FLOORS.index(there) < FLOORS.index(here)
    return there in FLOORS or there in FAMILIES[here]


def test_arrows_point_down():
    up = [
        f"{module} imports {found}" for module in MODULES for found in imported()[module] if not allowed(module, found)
    ]
    assert not up, f"which stand beside or above them: {sorted(up)}"


def test_calls_know_no_transform():
    own = {name: found for name, found in imported().items() if name.startswith("headcount.")}
    assert own and not [name for name, found in own.items() for each in found if each.startswith("transforms")]


def test_an_upward_arrow_is_seen():
    assert not allowed("mechanisms.batches.shards", "mechanisms.counting.sums")
    assert not allowed("mechanisms.sampled.plan", "mechanisms.shape.tallies")
    assert not allowed("mechanisms.shape.auto", "transforms.core.noise")
    assert not allowed("pipelines.ledger.account", "pipelines.jobs.run")
    assert allowed("pipelines.jobs.run", "pipelines.ledger.account")
    assert allowed("mechanisms.histogram.auto", "mechanisms.bound_choice.by_name.methods")
    assert set(imports("from headcount.transforms.core import noise", "x")) == {"transforms.core.noise"}


def of_papers(module: str) -> bool:
    """Whether a module lies in a room for methods of the papers that no default takes."""
    return "papers" in module.split(".")


def meets_papers(module: str, found: set[str]) -> bool:
    """Whether a module of a family, or its transform, imports methods that its default does not take."""
    stands_above = module in FACES or of_papers(module) or "by_name" in module.split(".")
    return not stands_above and any(map(of_papers, found))


def test_defaults_meet_no_other_method_of_the_papers():
    """Who reads a family from its default to the ground meets nothing of its `papers/`; commands and faces name them."""
    families = [name for name in MODULES if name.split(".")[0] in PACKAGES[:2]]
    assert not [module for module in families if meets_papers(module, imported()[module])]


def test_a_default_that_meets_papers_is_seen():
    found = {"mechanisms.bound_choice.papers.baselines"}
    assert meets_papers("mechanisms.bound_choice.l2_tail", found) and meets_papers("transforms.histogram", found)
    assert not meets_papers("mechanisms.bound_choice.by_name.methods", found)
    assert sum(map(of_papers, MODULES)) > 5


def package(module: str) -> str:
    """The folder that a module lies in; at the top of one of the four, the module itself."""
    path = MODULES.get(module) or MODULES[f"{module}.__init__"]
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(parts if len(parts) == 2 else parts[:-1])


def circle(arrows: Mapping[str, set[str]]) -> list[str] | None:
    """Names that lead to each other and back, if there are such."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as found:
        return list(found.args[1])
    return None


def test_no_import_circle():
    assert circle({name: found for name, found in imported().items() if not name.endswith("__init__")}) is None


def between_packages(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The packages that each package imports."""
    found: dict[str, set[str]] = {}
    for module, others in arrows.items():
        found.setdefault(package(module), set()).update({package(other) for other in others} - {package(module)})
    return found


def test_no_circle_of_packages():
    assert circle(between_packages(imported())) is None


def test_a_circle_of_packages_is_seen():
    """Two arrows that no circle of modules has: from one room to another, and back from another module of it."""
    arrows = {**imported(), "pipelines.sinks.formats": {"pipelines.pages.texts"}}
    assert circle({name: found for name, found in arrows.items() if not name.endswith("__init__")}) is None
    assert {"pipelines.sinks", "pipelines.pages"} <= set(circle(between_packages(arrows)) or ())
    arrows = {**imported(), "transforms.core.base": {"transforms.bounding"}}
    assert circle(between_packages(arrows)) is not None


def test_every_room_is_known():
    rooms = {package: {room(name) for name in MODULES if name.startswith(package)} - {None} for package in PACKAGES}
    assert rooms["mechanisms"] == {*FLOORS, *FAMILIES}
    assert rooms["pipelines"] == {*ROOMS_OF_PIPELINES}


def test_rooms_stay_small():
    modules = [path for path in MODULES.values() if path.name != "__init__.py"]
    full = [str(folder) for folder, number in Counter(path.parent for path in modules).items() if number > MOST_MODULES]
    assert not full, f"more than {MOST_MODULES} modules: {full}"
    long = [str(path) for path in modules if len(path.read_text().splitlines()) > MOST_LINES]
    assert not long, f"longer than {MOST_LINES} lines: {long}"


def test_tests_stay_small():
    long = {path.name for path in (TOP / "tests").rglob("*.py") if len(path.read_text().splitlines()) > MOST_LINES}
    assert not long, f"longer than {MOST_LINES} lines, so split them by what they test: {sorted(long)}"


def test_every_package_is_installed():
    """setup.py lists packages by their __init__.py, so a folder without one would be left out of a wheel."""
    folders = {path.parent for path in MODULES.values()}
    assert all((folder / "__init__.py").exists() for folder in folders)


def replaced(text: str) -> list[str]:
    """What a module changes of the libraries that it imports: names that it assigns to, and the list of import hooks."""
    tree = ast.parse(text)
    brought = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    brought -= {"sys"}  # whose hooks are there to be assigned
    assigned = [
        ast.unparse(each)
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id in brought
    ]
    hooks = [
        ast.unparse(each) for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr == "meta_path"
    ]
    return assigned + hooks


def test_no_library_is_changed():
    """No import hook, and no function of Beam that is replaced: what a library does slowly is measured and lived with."""
    changed = {module: replaced(path.read_text()) for module, path in MODULES.items()}
    assert not {module: names for module, names in changed.items() if names}


def test_a_changed_library_is_seen():
    assert replaced("from apache_beam.transforms import userstate\nuserstate.get_dofn_specs = once") == [
        "userstate.get_dofn_specs"
    ]
    assert replaced("import sys\nsys.meta_path.insert(0, hook)") == ["sys.meta_path"]


def by_way_of_pandas(text: str) -> bool:
    """Whether a module asks Arrow for a type of pandas, which a plain installation does not have."""
    return "to_pandas_dtype" in text


def test_no_type_goes_by_way_of_pandas():
    """That broke every command on files with 32-bit integers, where pandas was not installed."""
    assert not [module for module, path in MODULES.items() if by_way_of_pandas(path.read_text())]


def test_a_type_that_goes_by_way_of_pandas_is_seen():
    assert by_way_of_pandas("width = np.iinfo(column.type.to_pandas_dtype())")
