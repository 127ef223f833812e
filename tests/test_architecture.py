"""The map of the house, held by a machine: who may import whom, and who may touch the world.

LAYERS   is the map of docs/ARCHITECTURE.md: imports point up the list, data flows down it.
FINDINGS A rule is a function from one parsed module to sentences; no sentence, no finding.  Each rule is run over
         all of src/headwater, and once over a sample that breaks it, so that a rule which finds nothing is noticed.
NOT HERE Style that ruff can see: pyproject.toml.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = "headwater"

# One line a layer, from the ground up.  A module may import its own layer and those above it in this list.
LAYERS: list[tuple[str, ...]] = [
    ("errors", "ids", "clock", "settings", "metrics"),
    ("storage",),
    ("frames",),
    ("log",),
    ("metadata",),
    ("topics",),
    ("lake",),
    ("page",),
    ("spark",),
    ("protocol",),
    ("client",),
    ("server",),
    ("api",),
    ("demo",),
    ("cli",),
    ("testing",),
    ("", "__main__"),  # headwater/__init__.py, and `python -m headwater`
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# What the order alone would allow, and must not be.
NEVER = {
    ("frames", "storage"): "frames is pure: it does no I/O",
    ("client", "server"): "a client is on another machine",
    ("client", "storage"): "a client owns no files",
    ("client", "topics.engine"): "a client asks a server: it owns no log",
    ("client", "topics.shard"): "a client asks a server: it owns no log",
    ("client", "metadata.journal"): "a client asks a server: it owns no journal",
    ("api", "server"): "the server is a program over Log, not a part of it",
}

# Third parties have one home each.  Whoever else needs what they give asks the home for it.
HOMES: dict[str, tuple[str, ...]] = {
    "crc32c": ("frames",),
    "msgspec": ("metadata", "topics", "lake", "protocol", "client", "server", "cli"),
    "pyarrow": (
        "frames.codecs",
        "topics",
        "lake",
        "spark",
        "protocol",
        "client",
        "server",
        "api",
        "demo",
        "cli",
        "testing",
    ),
    # Extras: what lands rows, and what only a caller's own values bring.
    "pyiceberg": ("lake", "demo"),
    "polars_hash": ("lake.digest_words",),
    "numpy": ("lake",),
    "duckdb": ("lake", "api"),
    "duckdb_extension_avro": ("lake",),
    "duckdb_extension_iceberg": ("lake",),
    "pyspark": ("spark", "demo.spark_sink"),
    "obstore": ("storage.s3",),
    "uvicorn": ("server",),
    "h11": ("server.http_connection",),
    "starlette": ("server",),
    "prometheus_client": ("server.metrics_page",),
    "pandas": ("topics",),
    "polars": ("topics", "lake.digest_words"),
    "pytest": ("testing",),
    "typer": ("cli",),
    "rich": ("cli",),
}

# These treat bodies as bytes: importing them must not import pyarrow.
WITHOUT_PYARROW = ("errors", "ids", "clock", "settings", "metrics", "storage", "frames", "log", "metadata", "")

# The world: files, time, randomness.  Here are the only modules that may ask for them.
DOORS_TO_FILES = {"storage.disk"}
DOORS_TO_TIME_AND_CHANCE = {"storage.disk", "clock"}

OS_WITHOUT_EFFECT = {
    "PathLike",
    "_exit",
    "cpu_count",
    "environ",
    "fsdecode",
    "fsencode",
    "fspath",
    "getpid",
    "register_at_fork",
    "strerror",
}
FILE_MODULES = {"fcntl", "fileinput", "glob", "mmap", "shutil", "tempfile"}
FILE_METHODS = {"read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "rglob"}
CLOCK_CALLS = {
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.time",
    "time.time_ns",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
}
CHANCE_MODULES = {"random", "secrets"}
CHANCE_CALLS = {"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4"}
SEEDED_CHANCE = {
    "storage.simulated",
    "storage.simulated_store",
    "demo.schedule",
    "testing",
}  # may use random.Random(seed), no more

NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "core", "helpers", "helper", "base", "manager", "misc"}
LINES_MAX = 600


@dataclass(frozen=True)
class Module:
    """One file: its name below `headwater` ("" for the package itself), and what is in it."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def layer(self) -> str:
        return self.name.partition(".")[0]


def read_modules() -> list[Module]:
    found = []
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE / PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path.read_text(encoding="utf-8")))
    return found


MODULES = read_modules()
MODULE_NAMES = {module.name for module in MODULES}


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported name, fully dotted, wherever the import stands, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides its layer"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def imported_at_load(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Imports that happen when the module is imported: those outside functions and `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        waiting.extend(ast.iter_child_nodes(node))


def own_target(imported: str) -> str | None:
    """What of ours an import names, below `headwater`: "log.writer"; None if it is not ours."""
    first, _, rest = imported.partition(".")
    if first != PACKAGE:
        return None
    known = MODULE_NAMES | set(RANK)
    while rest and rest not in known:
        rest = rest.rpartition(".")[0]
    return rest


def uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every dotted name that the module uses, with what its imports stand for put in: `t()` after
    `from time import time as t` is time.time.  Builtins stand as they are written."""
    stands_for: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                stands_for[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                stands_for[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, dot, rest = ast.unparse(node).partition(".")
            yield f"{stands_for.get(first, first)}{dot}{rest}", node.lineno


# --------------------------------------------------------------------------------------------------- rules


def has_a_layer(module: Module) -> Iterator[str]:
    if module.layer not in RANK:
        yield f"headwater.{module.name} is on no layer"


def imports_point_up(module: Module) -> Iterator[str]:
    for imported, line in imports(module.tree):
        target = own_target(imported)
        if target is None or module.layer not in RANK:
            continue
        layer = target.partition(".")[0]
        if layer not in RANK or RANK[layer] > RANK[module.layer]:
            yield f"headwater.{module.name}:{line} imports {imported}, which is below it"
        for (importer, never), why in NEVER.items():
            if module.layer == importer and f"{target}.".startswith(f"{never}."):
                yield f"headwater.{module.name}:{line} imports {imported}: {why}"


def third_parties_are_at_home(module: Module) -> Iterator[str]:
    for imported, line in imports(module.tree):
        party = imported.partition(".")[0]
        if party == PACKAGE or party in sys.stdlib_module_names:
            continue
        homes = HOMES.get(party)
        if homes is None:
            yield f"headwater.{module.name}:{line} imports {party}, which has no home: see docs/decisions"
        elif not any(module.name == home or module.name.startswith(f"{home}.") for home in homes):
            yield f"headwater.{module.name}:{line} imports {party}, whose home is {', '.join(homes)}"


def loads_no_pyarrow(module: Module) -> Iterator[str]:
    if module.layer in WITHOUT_PYARROW:
        for imported, line in imported_at_load(module.tree):
            if imported.partition(".")[0] == "pyarrow":
                yield f"headwater.{module.name}:{line} imports {imported} when it is imported"


def touches_no_files(module: Module) -> Iterator[str]:
    if module.name in DOORS_TO_FILES:
        return
    for imported, line in imports(module.tree):
        if imported.partition(".")[0] in FILE_MODULES:
            yield f"headwater.{module.name}:{line} imports {imported}: go through storage.files"
    for used, line in uses(module.tree):
        first, _, rest = used.partition(".")
        opens = used in {"open", "builtins.open", "io.open", "io.FileIO"}
        asks_os = first == "os" and rest and rest.partition(".")[0] not in OS_WITHOUT_EFFECT
        if opens or (asks_os and used not in CHANCE_CALLS) or rest.rpartition(".")[2] in FILE_METHODS:
            yield f"headwater.{module.name}:{line} uses {used}: go through storage.files"


def asks_for_no_time_or_chance(module: Module) -> Iterator[str]:
    if module.name in DOORS_TO_TIME_AND_CHANCE:
        return
    allowed = {"random", "random.Random"} if module.name in SEEDED_CHANCE else set()
    for used, line in uses(module.tree):
        if used in CLOCK_CALLS:
            yield f"headwater.{module.name}:{line} uses {used}: take a clock"
        elif used in CHANCE_CALLS or (used.partition(".")[0] in CHANCE_MODULES and used not in allowed):
            yield f"headwater.{module.name}:{line} uses {used}: take an entropy"


def is_named_for_what_it_holds(module: Module) -> Iterator[str]:
    for part in module.name.split("."):
        if part.strip("_") in NAMES_THAT_SAY_NOTHING:
            yield f"headwater.{module.name} has a name that says nothing"


def opens_with_what_it_holds(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"headwater.{module.name} does not open with a docstring"


def is_short_enough_to_read(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines >= LINES_MAX:
        yield f"headwater.{module.name} has {lines} lines; under {LINES_MAX} is a file with one idea"


Rule = Callable[[Module], Iterator[str]]

RULES: list[Rule] = [
    has_a_layer,
    imports_point_up,
    third_parties_are_at_home,
    loads_no_pyarrow,
    touches_no_files,
    asks_for_no_time_or_chance,
    is_named_for_what_it_holds,
    opens_with_what_it_holds,
    is_short_enough_to_read,
]

BROKEN: list[tuple[Rule, str, str]] = [
    (has_a_layer, "plumbing", ""),
    (imports_point_up, "storage.disk", "from headwater.log.writer import Writer"),
    (imports_point_up, "log.reader", "import headwater.topics.schema"),
    (imports_point_up, "log.reader", "from headwater import cli"),
    (imports_point_up, "log.reader", "def f():\n    from headwater.metadata import journal"),
    (imports_point_up, "ids", "import headwater"),
    (imports_point_up, "frames.frame", "from headwater.storage.files import File"),
    (imports_point_up, "client.session", "from headwater.topics.engine import Engine"),
    (third_parties_are_at_home, "log.index", "import crc32c"),
    (third_parties_are_at_home, "log.index", "from rich.table import Table"),
    (third_parties_are_at_home, "frames.frame", "def f():\n    import pyarrow"),
    (third_parties_are_at_home, "cli.main", "import leftpad"),
    (loads_no_pyarrow, "frames.codecs", "import pyarrow as pa"),
    (loads_no_pyarrow, "", "try:\n    from pyarrow import compute\nexcept ImportError:\n    pass"),
    (touches_no_files, "log.writer", "open('x')"),
    (touches_no_files, "log.writer", "import io\nio.open('x')"),
    (touches_no_files, "log.writer", "import os as system\nsystem.unlink('x')"),
    (touches_no_files, "log.writer", "from os import fsync\nfsync(3)"),
    (touches_no_files, "log.writer", "import os\nos.path.exists('x')"),
    (touches_no_files, "cli.log", "from pathlib import Path\nPath('x').write_text('y')"),
    (touches_no_files, "log.writer", "import mmap"),
    (asks_for_no_time_or_chance, "log.writer", "import time\ntime.time()"),
    (asks_for_no_time_or_chance, "log.writer", "from time import monotonic as now\nnow()"),
    (asks_for_no_time_or_chance, "log.writer", "from datetime import datetime\ndatetime.now()"),
    (asks_for_no_time_or_chance, "log.writer", "import random\nrandom.Random(7)"),
    (asks_for_no_time_or_chance, "storage.simulated", "import random\nrandom.random()"),
    (asks_for_no_time_or_chance, "log.writer", "import os\nos.urandom(8)"),
    (asks_for_no_time_or_chance, "log.writer", "from uuid import uuid4\nuuid4()"),
    (is_named_for_what_it_holds, "log.utils", ""),
    (is_named_for_what_it_holds, "log._helpers", ""),
    (opens_with_what_it_holds, "log.writer", "import os"),
    (is_short_enough_to_read, "log.writer", "\n" * LINES_MAX),
]

SOUND: list[tuple[Rule, str, str]] = [
    (imports_point_up, "log.reader", "from headwater.frames.frame import Frame\nfrom headwater.ids import Lsn"),
    (imports_point_up, "log.reader", "from headwater.log.segment import Segment"),
    (third_parties_are_at_home, "frames.codecs", "def f():\n    import pyarrow"),
    (loads_no_pyarrow, "frames.codecs", "def f():\n    import pyarrow"),
    (loads_no_pyarrow, "topics.schema", "import pyarrow"),
    (touches_no_files, "storage.disk", "import os\nos.open('x', os.O_RDONLY)"),
    (touches_no_files, "log.writer", "import os\nfiles.open('x')\nos.getpid()"),
    (asks_for_no_time_or_chance, "clock", "import time\ntime.time()"),
    (asks_for_no_time_or_chance, "storage.simulated", "import random\nrandom.Random(7)"),
    (asks_for_no_time_or_chance, "storage.simulated", "from random import Random\nRandom(7)"),
]


def label(case: object) -> str | None:
    return getattr(case, "__name__", None)


@pytest.mark.parametrize("rule", RULES, ids=label)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    assert MODULES, "no module was found: the map is held over nothing"

    findings = [finding for module in MODULES for finding in rule(module)]

    assert not findings, "think about the layering first:\n  " + "\n  ".join(findings)


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN, ids=label)
def test_a_module_that_breaks_a_rule_is_found(rule: Rule, name: str, text: str) -> None:
    module = Module(name, text)

    findings = list(rule(module))

    assert findings


@pytest.mark.parametrize(("rule", "name", "text"), SOUND, ids=label)
def test_a_module_that_keeps_a_rule_is_left_alone(rule: Rule, name: str, text: str) -> None:
    module = Module(name, text)

    findings = list(rule(module))

    assert not findings


def test_every_rule_was_seen_to_find_something() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_tests_and_benches_open_with_what_they_hold(folder: str) -> None:
    files = [path for path in sorted((ROOT / folder).rglob("*.py")) if path.stat().st_size]

    silent = [str(path.relative_to(ROOT)) for path in files if not ast.get_docstring(ast.parse(path.read_bytes()))]

    assert files
    assert not silent


def test_the_log_loads_no_pyarrow() -> None:
    program = "import sys, headwater.log; assert 'pyarrow' not in sys.modules, 'headwater.log loads pyarrow'"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
