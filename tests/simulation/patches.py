"""The product with a function replaced in memory, and put back: what every suite of mutants is made with."""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any


class Stale(AssertionError):
    """A mutant's edit no longer fits the function that it edits."""


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, inspect.getattr_static(owner, name)))
        setattr(owner, name, value)

    def edit(self, owner: Any, name: str, *changes: tuple[str, str]) -> None:
        """Replace a function of a class or a module by its source with these changes."""
        original = inspect.getattr_static(owner, name)
        function = original.fget if isinstance(original, property) else original
        assert isinstance(function, FunctionType)
        source = textwrap.dedent(inspect.getsource(function))
        if isinstance(original, property):
            source = source.removeprefix("@property\n")
        for old, new in changes:
            if old not in source:
                raise Stale(f"{name} has no {old!r} any more")
            source = source.replace(old, new)
        flags = __future__.annotations.compiler_flag
        code = compile(source, f"<mutant of {name}>", "exec", flags=flags, dont_inherit=True)
        made: dict[str, Any] = {}
        exec(code, function.__globals__, made)
        changed = made[function.__name__]
        if isinstance(original, property):
            self.set(owner, name, property(changed))
        elif isinstance(owner, ModuleType):
            self.everywhere(original, changed)
        else:
            self.set(owner, name, changed)

    def everywhere(self, original: Any, changed: Any) -> None:
        """Replace a module's function wherever it was imported by name."""
        for module in [module for name, module in sys.modules.items() if name.startswith("headwater.")]:
            for name, value in list(vars(module).items()):
                if value is original:
                    self.set(module, name, changed)

    def undo(self) -> None:
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)
        self._before.clear()


@contextmanager
def patched(apply: Callable[[Patch], None]) -> Iterator[None]:
    """While this lasts, what `apply` does to the product holds."""
    patch = Patch()
    try:
        apply(patch)
        yield
    finally:
        patch.undo()
