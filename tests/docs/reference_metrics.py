"""docs/reference/metrics.md: every metric that the metrics page can have, read from the code that writes it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.server import metrics_page as source

HEAD = """# Every metric

Written from the code by `python -m tests.docs.references`. [metrics.md](../metrics.md) says more of each, who may read
them, and which alerts stand on them.

| metric | type | labels | what it says |
|---|---|---|---|"""

KINDS = {
    "CounterMetricFamily": "counter",
    "_counter": "counter",
    "GaugeMetricFamily": "gauge",
    "_gauge": "gauge",
    "HistogramMetricFamily": "histogram",
    "_histogram": "histogram",
}


@dataclass(frozen=True, order=True)
class Declared:
    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def metrics_page() -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels) or '-'} | {each.text} |"
        for each in sorted(declared())
    ]
    return "\n".join([HEAD, *rows]) + "\n"


def declared() -> Iterator[Declared]:
    """Every family that the source makes by a name and a text of its own."""
    for node in ast.walk(ast.parse(inspect.getsource(source))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in KINDS:
            continue
        match node.args[:2]:
            case [ast.Constant(value=str(name)), ast.Constant(value=str(text))]:
                labels = next((keyword.value for keyword in node.keywords if keyword.arg == "labels"), None)
                kind = KINDS[node.func.id]
                full = f"{name}_total" if kind == "counter" and not name.endswith("_total") else name
                yield Declared(full, kind, tuple(ast.literal_eval(labels)) if labels is not None else (), text)
            case _:
                pass  # The helper that makes a family of whatever name it is given.
