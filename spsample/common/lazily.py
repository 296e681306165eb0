"""`lazily`: an attribute that is computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazily(Generic[T]):  # noqa: N801  (used as a decorator)
    """`functools.cached_property` without a lock.

    Up to Python 3.11 it holds a lock of all instances while it computes. Ranks that are threads would wait for each
    other for ever where computing is collective, and so would a process that is forked meanwhile, for a thread that it
    does not have. Threads that ask at the same time may each compute a value; the first one is kept.

    Examples
    --------
    >>> class Circle:
    ...     @lazily
    ...     def area(self):
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area, circle.area
    computed
    (3.14, 3.14)
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazily[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazily[T] | T:
        if instance is None:
            return self
        value = self._compute(instance)
        kept: T = instance.__dict__.setdefault(self._name, value)  # hides this descriptor
        return kept
