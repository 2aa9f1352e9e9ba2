"""The window structures by name: which there are, what they can serve, and how they are made."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from thetajoin.errors import OptionError, suggest
from thetajoin.index.probe import Shape
from thetajoin.paper_options import AUTO, PO_JOIN
from thetajoin.papers.structures.structure import Structure

_CLASSES = {
    "b_plus_tree": "BPlusTree",
    "css_tree": "CssTree",
    "b_chain": "BChain",
    "ib_chain": "IbChain",
    "im_tree": "ImTree",
    "pim_tree": "PimTree",
    "rap_table": "RapTable",
    "wib_tree": "WibTree",
    "bi_sort": "BiSort",
    "nested_loop": "NestedLoop",
    "bitset": "Bitset",
    "hash": "Hash",
}
NAMES = (PO_JOIN, *_CLASSES)


def structure_class(name: str) -> type[Structure]:
    """The class of a structure, loaded when it is asked for."""
    found: type[Structure] = getattr(
        import_module(f"thetajoin.papers.structures.{name}"), _CLASSES[name]
    )
    assert issubclass(found, Structure)
    return found


def check_name(name: Any, options: Mapping[str, Any]) -> None:
    """Refuse an unknown index, and parameters that it does not have.

    >>> check_name("pim_tre", {})
    Traceback (most recent call last):
    thetajoin.errors.OptionError: index='pim_tre' is not known: did you mean 'pim_tree'?
    """
    if not isinstance(name, str) or name not in (AUTO, *NAMES):
        text = name if isinstance(name, str) else ""
        raise OptionError(f"index={name!r} is not known: {suggest(text, (AUTO, *NAMES))}")
    known = parameters(name)
    for key, value in options.items():
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise OptionError(f"index_options: {name} has no parameter {key!r}; {has}")
        if key == "intersection":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise OptionError(f"index_options: {key}={value!r} must be a number above 0")
        if not value < 2**31:
            raise OptionError(f"index_options: {key}={value!r} must be below 2**31")
        if not isinstance(known[key], float) and not isinstance(value, int):
            raise OptionError(f"index_options: {key}={value!r} must be a whole number")
        if key in ("f_b", "f_ib", "fanout", "W") and value < 4:
            raise OptionError(f"index_options: {key}={value!r} must be at least 4")
        if key == "m" and value > 1:
            raise OptionError(f"index_options: m={value!r}, the merge ratio, must be at most 1")


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a structure under their papers' names, with their defaults.

    >>> parameters("pim_tree")["m"]
    0.125
    """
    if name in (AUTO, PO_JOIN):
        return {}
    signature = inspect.signature(structure_class(name).__init__)
    return {
        key: parameter.default
        for key, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def suits(name: str, shapes: Iterable[Shape]) -> str | None:
    """Why a structure cannot serve a condition's keys; None if it can."""
    if name in (AUTO, PO_JOIN):
        return None
    for shape in shapes:
        if any(dim.is_bytes for dim in shape.dims):
            return "it orders strings and binary by a dictionary, which only an immutable index has"
        if name != "nested_loop" and shape.primary is None and not shape.run:
            return "no comparison in it has one side on each hand, so there is no key to look up"
    return None


def check_suits(name: str, shapes: Iterable[Shape], condition: str) -> None:
    """Refuse an index that cannot serve a condition, naming those that can."""
    shapes = list(shapes)
    why = suits(name, shapes)
    if why is not None:
        able = [other for other in NAMES if suits(other, shapes) is None]
        raise OptionError(
            f"index={name!r} cannot serve {condition!r}: {why}; use {', '.join(able)} or auto"
        )


def make(
    name: str, shape: Shape, window: int | None, options: Mapping[str, Any] | None = None
) -> Structure:
    """An empty structure."""
    return structure_class(name)(shape, window, **(options or {}))
