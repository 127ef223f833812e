"""docs/landing.md shows programs that work: each is run as it stands, one after the other, in one directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "landing.md"


def programs() -> list[str]:
    """Those that need no Spark; what builds on an earlier one is given its import."""
    found = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "pyspark" not in block
    ]
    return [block if block.startswith("import") else f"import headwater as hw\n{block}" for block in found]


def test_every_program_of_the_page_runs(tmp_path: Path) -> None:
    said = []
    for program in programs():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{program}\n{done.stderr}"
        said.append(done.stdout.strip())

    assert len(said) == 3
    assert said[0] == "Landed(orders: 1 row, lsn 1..3)", "as the page says"
    assert (tmp_path / "data" / "lake").is_dir() and (tmp_path / "data" / "catalog.db").is_file()
