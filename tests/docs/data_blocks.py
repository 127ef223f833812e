"""Blocks that are not run: data is read by whoever would read it, and an installation names extras that exist."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import duckdb
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
_EXTRAS = re.compile(r"(?:headwater|\.)\[([\w,-]+)\]")


def check_data(language: str, text: str) -> None:
    """Raises what the parser raises."""
    match language:
        case "json":
            json.loads(text)
        case "toml":
            tomllib.loads(text)
        case "yaml":
            list(yaml.safe_load_all(text))
        case "sql":
            assert duckdb.extract_statements(text), "no statement"
        case "xml":
            ET.fromstring(text)
        case "ini":
            configparser.ConfigParser(interpolation=None).read_string(text)
        case _:
            raise AssertionError(f"nobody reads {language}")


def is_install(text: str) -> bool:
    """Every line of it installs something: what is already here, and would take minutes."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and all(line.startswith(("pip install", "python3 -m venv", "python -m venv")) for line in lines)


def check_install(text: str) -> None:
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {name for group in _EXTRAS.findall(text) for name in group.split(",")}
    assert named <= known, f"no such extras: {named - known}"
