"""One Arrow column for one column of a topic: the same values in the topic's encoding.

PROMISE  recast never changes a value: what would be rounded, cut, parsed or moved to another zone is not cast here,
         but looked at value by value (values.py), where it is refused with a reason.  The exception is stated in
         docs/schemas.md: a double in a column of float is rounded to the nearest, and refused if that is infinite.
NOT HERE Rows and reasons: rows.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidRequest
from headwater.topics.schema import normal_type
from headwater.topics.values import Unreadable, show


def recast(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    """The array as `target`; None if some value does not fit, or if only a look at each can tell."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(array.type, pa.UuidType) and not pa.types.is_string(target):
        array = array.storage
    if not _is_safe(array.type, target):
        return None
    try:
        cast = array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if pa.types.is_floating(target) and _infinities(cast) != _infinities(array):
        return None
    return cast


def _is_safe(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether pyarrow's own checks, in a cast from one to the other, refuse whatever would change a value."""
    types = pa.types
    if types.is_dictionary(source):
        return _is_safe(source.value_type, target)
    if types.is_nested(target):
        return _is_same_but_for_nulls(source, target)
    if types.is_integer(target):
        return bool(types.is_integer(source) or types.is_floating(source))
    if types.is_floating(target):
        return bool(types.is_integer(source) or types.is_floating(source))
    if types.is_decimal(target):
        return bool(types.is_decimal(source))
    if types.is_string(target):
        return bool(types.is_large_string(source) or types.is_string(source) or types.is_string_view(source))
    if types.is_fixed_size_binary(target):
        return bool(source.equals(target))
    if types.is_binary(target):
        return bool(
            types.is_binary(source)
            or types.is_large_binary(source)
            or types.is_binary_view(source)
            or types.is_fixed_size_binary(source)
        )
    if types.is_date32(target):
        return bool(types.is_date(source))
    if types.is_timestamp(target):
        return types.is_timestamp(source) and (source.tz is None) == (target.tz is None)
    return bool(source.equals(target))


def _is_same_but_for_nulls(source: pa.DataType, target: pa.DataType) -> bool:
    try:
        return bool(_loosened(normal_type(source)).equals(_loosened(target)))
    except InvalidRequest:
        return False


def _loosened(type_: pa.DataType) -> pa.DataType:
    """The type with every field inside it nullable."""
    types = pa.types
    if types.is_map(type_):
        return pa.map_(_loosened(type_.key_type), _loosened(type_.item_type))
    if types.is_list(type_):
        return pa.list_(_loosened(type_.value_type))
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, _loosened(field.type)) for field in type_])
    return type_


def _infinities(array: pa.Array) -> int:
    if not pa.types.is_floating(array.type):
        return 0
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    return pc.sum(pc.is_inf(array)).as_py() or 0


# --------------------------------------------------------------------------------------------- nulls inside


def may_lack_values(field: pa.Field) -> Callable[[pa.Array], bool]:
    """Of arrays of this field's type: might there be a null, below the top, where none may be?

    The answer may be yes where there is none (a null struct holds null fields): then each value is looked at.
    """
    checks = _checks_inside(field.type)
    if checks is None:
        return _lacks_nothing
    return checks


def _lacks_nothing(array: pa.Array) -> bool:
    return False


def _checks_inside(type_: pa.DataType) -> Callable[[pa.Array], bool] | None:
    types = pa.types
    if types.is_struct(type_):
        checks = [(place, _check_field(type_.field(place))) for place in range(type_.num_fields)]
        needed = [(place, check) for place, check in checks if check is not None]
        if not needed:
            return None

        def of_struct(array: pa.Array) -> bool:
            parts = (array.drop_null() if array.null_count else array).flatten()
            return any(check(parts[place]) for place, check in needed)

        return of_struct
    if types.is_map(type_):
        check = _check_field(type_.item_field)
        return None if check is None else lambda array: check(array.items)
    if types.is_list(type_):
        check_item = _check_field(type_.value_field)
        return None if check_item is None else lambda array: check_item(array.flatten())
    return None


def _check_field(field: pa.Field) -> Callable[[pa.Array], bool] | None:
    inside = _checks_inside(field.type)
    if field.nullable:
        return inside
    if inside is None:
        return lambda array: array.null_count > 0
    return lambda array: array.null_count > 0 or inside(array)


# -------------------------------------------------------------------------------------------- single values


def python_values(array: pa.Array) -> list[object]:
    """The array's values in Python; Unreadable where Python has none (a year above 9999, broken text)."""
    try:
        return list(array.to_pylist())
    except (ValueError, OverflowError):  # UnicodeDecodeError is a ValueError
        return [_python_value(scalar) for scalar in array]


def _python_value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return Unreadable(scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))
    except (ValueError, OverflowError):
        inner = getattr(scalar, "value", None)
        return Unreadable(f"{inner} ({scalar.type})" if isinstance(inner, int) else f"a value of {scalar.type}")


def utf8_or_reasons(array: pa.Array, name: str, error: pa.ArrowInvalid) -> tuple[pa.Array, list[tuple[int, str]]]:
    """Text with null where its bytes are no UTF-8, and a reason for each; InvalidRequest if more is wrong with it."""
    types = pa.types
    if types.is_string(array.type):
        bare = pa.binary()
    elif types.is_large_string(array.type):
        bare = pa.large_binary()
    else:
        raise InvalidRequest(f"{name}: this is not valid Arrow data", cause=str(error)) from error
    try:
        data = pa.Array.from_buffers(bare, len(array), array.buffers(), offset=array.offset)
        data.validate(full=True)
    except pa.ArrowInvalid as worse:
        raise InvalidRequest(f"{name}: this is not valid Arrow data", cause=str(worse)) from worse
    reasons = []
    for number, value in enumerate(data.to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            reasons.append((number, f"{name}: {show(value)} is not valid UTF-8"))
    broken = pc.is_in(pa.array(range(len(array)), pa.int64()), pa.array([number for number, _ in reasons], pa.int64()))
    return pc.if_else(broken, pa.scalar(None, bare), data).cast(array.type), reasons
