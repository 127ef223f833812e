"""What became of the rows of Iceberg's own Spark sink, step by step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class SparkStep:
    """One step, on both sides."""

    step: str
    headwater: str
    spark: str
    lost: int = 0
    doubled: int = 0


@dataclass
class Beside:
    """Spark's side."""

    spark_version: str
    iceberg: str
    written: int = 0
    """Rows in the files that the stream was given."""
    in_table: int = 0
    lost: int = 0
    doubled: int = 0
    seconds: float = 0.0
    steps: list[SparkStep] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}
