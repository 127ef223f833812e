"""One Python value for one column: does it fit, as what, and if not, why.

Every type of a schema in normal form has a reader with two answers:

exact    Whether all of these values are of the very Python types that pyarrow turns into the column without loss.
         It looks at the set of their types, not at one after the other, so that a thousand rows cost what ten do.
fit      One value as pyarrow is to be given it; or Unfit, with a reason that a person understands.  It knows more
         than `exact`: whole floats for an integer, ISO texts for a time, members of an enum.

PROMISE  What fit returns, pyarrow takes and keeps as it is.  What exact lets through, fit would let through too:
         the fast way is never the laxer one.
NOT HERE Rows, and columns that come as Arrow: rows.py.  The table of what fits what, for users: docs/schemas.md.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from types import NoneType

import pyarrow as pa

MISSING = "missing, and it may not be null"
_SHOWN_LENGTH_MAX = 60
_FINER_THAN_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")


class Unfit(Exception):
    """A value does not fit; `path` leads to it inside a nested column."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason)

    def inside(self, step: str) -> Unfit:
        return Unfit(self.reason, step + self.path)

    def of(self, column: str) -> str:
        return f"{column}{self.path}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """A value of an Arrow column that Python has no value for; it fits nowhere."""

    text: str

    def __repr__(self) -> str:
        return self.text


def show(value: object) -> str:
    """The value in a message: its repr, cut where it would hide the rest."""
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[: _SHOWN_LENGTH_MAX - 3] + "..."


def plain(value: object) -> object:
    """What stands behind a member of an enum, a number of numpy, or a missing value of pandas."""
    if isinstance(value, enum.Enum):
        return value.value
    library = type(value).__module__.partition(".")[0]
    if library == "numpy":
        return value.tolist() if hasattr(value, "tolist") else value
    if library == "pandas" and type(value).__name__ in {"NaTType", "NAType"}:
        return None
    return value


def mapping_of(row: object) -> Mapping[str, object] | None:
    """A row or a struct by the names of its columns; None if it is neither a dict nor an instance of a model."""
    if isinstance(row, Mapping):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        names, values = fields_of(type(row))
        return dict(zip(names, values(row), strict=True))
    fields = getattr(type(row), "model_fields", None)
    if isinstance(fields, Mapping):
        # What a model of `extra="allow"` holds beyond its fields was sent too, and is a column or a reason to refuse.
        return {name: getattr(row, name) for name in fields} | (getattr(row, "__pydantic_extra__", None) or {})
    return None


@lru_cache(maxsize=256)
def fields_of(kind: type) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:
    """Names of a dataclass's fields, and what takes all their values from an instance."""
    names = tuple(field.name for field in dataclasses.fields(kind))
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda row: tuple(getattr(row, name) for name in names)


# ---------------------------------------------------------------------------------------------------- readers


class ValueReader:
    """The readers' common shape; `fit` is given neither None nor what `plain` takes away."""

    kinds: frozenset[type] = frozenset()

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self._kinds_or_none = self.kinds | {NoneType}

    def exact(self, values: Sequence[object], nullable: bool = True) -> bool:
        return set(map(type, values)) <= (self._kinds_or_none if nullable else self.kinds)

    def fit(self, value: object) -> object:
        raise NotImplementedError

    def wrong(self, value: object) -> Unfit:
        return Unfit(f"{show(value)} is not {_article(self.type)}")


class BoolReader(ValueReader):
    kinds = frozenset({bool})

    def fit(self, value: object) -> object:
        if isinstance(value, bool):
            return value
        raise self.wrong(value)


class IntReader(ValueReader):
    kinds = frozenset({int})

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        bits: int = type_.bit_width
        signed = pa.types.is_signed_integer(type_)
        self._low, self._high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def fit(self, value: object) -> object:
        if isinstance(value, bool):
            raise self.wrong(value)
        if isinstance(value, float):
            if not value.is_integer():
                raise Unfit(f"{show(value)} is not a whole number")
            value = int(value)
        if not isinstance(value, int):
            raise self.wrong(value)
        if not self._low <= value <= self._high:
            raise Unfit(f"{show(value)} is out of range for {self.type}: {self._low} to {self._high}")
        return int(value)


class FloatReader(ValueReader):
    kinds = frozenset({float, int})

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        # The largest integer up to which all are exact, the largest value, and how to find out about one above it.
        self._whole_max, self._max, self._pack = {
            16: (1 << 11, 65_504.0, struct.Struct("<e")),
            32: (1 << 24, 3.4028234663852886e38, struct.Struct("<f")),
            64: (1 << 53, None, None),
        }[type_.bit_width]

    def exact(self, values: Sequence[object], nullable: bool = True) -> bool:
        if not super().exact(values, nullable):
            return False
        # An infinity or a NaN may answer no here; fit then looks at it by itself.
        return self._max is None or max(map(abs, filter(None, values)), default=0) <= self._max  # type: ignore[arg-type]

    def fit(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(value)
        if isinstance(value, int):
            if abs(value) > self._whole_max:
                raise Unfit(
                    f"{show(value)} is not exact as {_article(self.type)}: whole numbers are up to 2^"
                    f"{self._whole_max.bit_length() - 1}"
                )
            return int(value)
        if self._pack is not None:
            try:
                self._pack.pack(value)
            except OverflowError:
                raise Unfit(f"{show(value)} is too large for {_article(self.type)}") from None
        return float(value)


class DecimalReader(ValueReader):
    kinds = frozenset({decimal.Decimal, int})

    def fit(self, value: object) -> object:
        if isinstance(value, str):
            try:
                value = decimal.Decimal(value)
            except decimal.InvalidOperation:
                raise self.wrong(value) from None
        if isinstance(value, bool) or not isinstance(value, decimal.Decimal | int):
            if isinstance(value, float):
                raise Unfit(f"{show(value)} is a float, which has no exact decimals: give a Decimal")
            raise self.wrong(value)
        try:
            pa.scalar(value, self.type)
        except (pa.ArrowInvalid, OverflowError):
            raise Unfit(f"{show(value)} does not fit {self.type} without loss") from None
        return value


class StringReader(ValueReader):
    kinds = frozenset({str})

    def fit(self, value: object) -> object:
        if isinstance(value, uuid.UUID):
            return str(value)
        if not isinstance(value, str):
            if isinstance(value, bytes | bytearray | memoryview):
                raise Unfit(f"{show(value)} is bytes, and the column holds text: decode it")
            raise self.wrong(value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(f"{show(value)} is not valid text: it holds half of a surrogate pair") from None
        return str(value)


class BinaryReader(ValueReader):
    kinds = frozenset({bytes})

    def fit(self, value: object) -> object:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        if isinstance(value, str):
            raise Unfit(f"{show(value)} is text, and the column holds bytes: encode it")
        raise self.wrong(value)


class FixedBinaryReader(BinaryReader):
    def fit(self, value: object) -> object:
        data = value.bytes if isinstance(value, uuid.UUID) else super().fit(value)
        assert isinstance(data, bytes)
        if len(data) != self.type.byte_width:
            raise Unfit(f"{show(data)} has {len(data)} bytes, not {self.type.byte_width}")
        return data


class DateReader(ValueReader):
    kinds = frozenset({datetime.date})

    def fit(self, value: object) -> object:
        if isinstance(value, datetime.datetime):
            raise Unfit(f"{show(value)} has a time of day, and the column holds dates")
        if isinstance(value, datetime.date):
            return value
        if isinstance(value, str):
            try:
                return datetime.date.fromisoformat(value)
            except ValueError:
                raise self.wrong(value) from None
        raise self.wrong(value)


class TimestampReader(ValueReader):
    kinds = frozenset({datetime.datetime})

    def exact(self, values: Sequence[object], nullable: bool = True) -> bool:
        if not super().exact(values, nullable):
            return False
        zones = set(map(attrgetter("tzinfo"), filter(None, values)))
        if self.type.tz is None:
            return zones <= {None}
        # Of another zone, a time near the ends of the calendar may have no date in UTC: fit looks at each.
        return all(zone is not None and str(zone) == "UTC" for zone in zones)

    def fit(self, value: object) -> object:
        if isinstance(value, str):
            text = value
            try:
                value = datetime.datetime.fromisoformat(text)
            except ValueError:
                raise self.wrong(text) from None
            if _FINER_THAN_MICROSECONDS.search(text):
                raise Unfit(f"{show(text)} is finer than a microsecond")
        if not isinstance(value, datetime.datetime):
            raise self.wrong(value)
        if getattr(value, "nanosecond", 0):
            raise Unfit(f"{show(value)} is finer than a microsecond")
        if self.type.tz is None:
            if value.utcoffset() is not None:
                raise Unfit(f"{show(value)} has a time zone, and the column holds times without one")
            return value.replace(tzinfo=None)
        if value.utcoffset() is None:
            raise Unfit(f"{show(value)} has no time zone, and the column holds instants: say which, for example UTC")
        try:
            return value.astimezone(datetime.UTC)
        except OverflowError:
            raise Unfit(f"{show(value)} is out of range in UTC") from None


class ListReader(ValueReader):
    kinds = frozenset({list})

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._item = reader_of(type_.value_type)
        self._nullable = type_.value_field.nullable

    def exact(self, values: Sequence[object], nullable: bool = True) -> bool:
        return super().exact(values, nullable) and self._item.exact(
            list(chain.from_iterable(filter(None, values))),  # type: ignore[arg-type]
            self._nullable,
        )

    def fit(self, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise self.wrong(value)
        return [fit_or_none(self._item, item, self._nullable, f"[{place}]") for place, item in enumerate(value)]


class MapReader(ValueReader):
    kinds = frozenset({dict})

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._key, self._value = reader_of(type_.key_type), reader_of(type_.item_type)
        self._nullable = type_.item_field.nullable

    def exact(self, values: Sequence[object], nullable: bool = True) -> bool:
        if not super().exact(values, nullable):
            return False
        maps: list[dict[object, object]] = list(filter(None, values))  # type: ignore[arg-type]
        return self._key.exact(list(chain.from_iterable(maps)), False) and self._value.exact(
            list(chain.from_iterable(each.values() for each in maps)), self._nullable
        )

    def fit(self, value: object) -> object:
        if isinstance(value, Mapping):
            pairs: Iterable[tuple[object, object]] = value.items()
        elif isinstance(value, list | tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            pairs = value
        else:
            raise self.wrong(value)
        return [
            (
                fit_or_none(self._key, key, False, f"[key {show(key)}]"),
                fit_or_none(self._value, item, self._nullable, f"[{show(key)}]"),
            )
            for key, item in pairs
        ]


class StructReader(ValueReader):
    kinds = frozenset({dict})

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._names = frozenset(field.name for field in type_)
        self._fields = [(field.name, reader_of(field.type), field.nullable) for field in type_]

    def exact(self, values: Sequence[object], nullable: bool = True) -> bool:
        if not super().exact(values, nullable):
            return False
        structs: list[dict[str, object]] = [each for each in values if each is not None]  # type: ignore[misc]
        return set().union(*structs) <= self._names and all(
            reader.exact(take(structs, name), may_be_null) for name, reader, may_be_null in self._fields
        )

    def fit(self, value: object) -> object:
        given = mapping_of(value)
        if given is None:
            raise self.wrong(value)
        for name in given:
            if name not in self._names:
                raise Unfit("no such field", f".{name}")
        return {
            name: fit_or_none(reader, given.get(name), nullable, f".{name}") for name, reader, nullable in self._fields
        }


def take(rows: Sequence[Mapping[str, object]], name: str) -> list[object]:
    """One column of rows; None where a row does not have it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def fit_or_none(reader: ValueReader, value: object, nullable: bool, step: str = "") -> object:
    """The value as pyarrow is to be given it; Unfit if it does not fit, or is null where it may not be."""
    value = plain(value)
    if value is None:
        if nullable:
            return None
        raise Unfit(MISSING, step)
    if isinstance(value, Unreadable):
        raise Unfit(f"{value} is out of range, or finer than a microsecond", step)
    try:
        return reader.fit(value)
    except Unfit as unfit:
        raise unfit.inside(step) from None


@lru_cache(maxsize=1_024)
def reader_of(type_: pa.DataType) -> ValueReader:
    """The reader of a type in normal form."""
    types = pa.types
    for is_kind, kind in (
        (types.is_boolean, BoolReader),
        (types.is_integer, IntReader),
        (types.is_floating, FloatReader),
        (types.is_decimal, DecimalReader),
        (types.is_string, StringReader),
        (types.is_fixed_size_binary, FixedBinaryReader),
        (types.is_binary, BinaryReader),
        (types.is_date32, DateReader),
        (types.is_timestamp, TimestampReader),
        (types.is_map, MapReader),
        (types.is_list, ListReader),
        (types.is_struct, StructReader),
    ):
        if is_kind(type_):
            return kind(type_)
    raise AssertionError(f"{type_} is not in normal form")


def _article(type_: pa.DataType) -> str:
    name = str(type_)
    return f"an {name}" if name[0] in "aeio" else f"a {name}"
