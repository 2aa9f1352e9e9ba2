"""How numba compiles kernels: what it compiled is kept, and instructions it lacks are added."""

from __future__ import annotations

import contextlib
import platform
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite
import numba
from llvmlite import binding, ir
from numba import njit, types
from numba.core import config, serialize, sigutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.extending import intrinsic

from thetajoin.kernels import store

# Kernels in a wheel are compiled for a processor that nearly all machines surpass. By architecture:
# LLVM's name for it, and the features it has beyond the first of its kind; the best is first.
_SECOND = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_THIRD = (*_SECOND, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_X86 = (("x86-64-v3", _THIRD), ("x86-64-v2", _SECOND))
BASELINES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "x86_64": _X86,
    "AMD64": _X86,
    "arm64": (("generic", ()),),
    "aarch64": (("generic", ()),),
}
# Whether to use the kernels that came with the package; `warm` makes better ones.
use_ready = True
# Numba's settings that change what it compiles; the processor is in an entry's name.
SETTINGS = (
    "OPT",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
)
# Seconds of compiling after which a terminal shows what is going on.
SILENT = 1.0


def compile_kernel(function: Callable[..., Any], **options: Any) -> Any:
    """The function compiled at its first call, and kept on disk where some folder takes it."""
    dispatcher = njit(**options)(function)
    # An inlined function is compiled as a part of others.
    if options.get("inline") != "always" and hasattr(dispatcher, "_cache"):
        dispatcher._cache = KernelCache(function)
    return dispatcher


def features_of(names: tuple[str, ...]) -> str:
    """Features of a processor as LLVM and NUMBA_CPU_FEATURES spell them."""
    return ",".join(f"+{name}" for name in names)


@cache
def find_baselines() -> tuple[tuple[str, str], ...]:
    """Names and features of the baseline processors that this one surpasses, the best first."""
    try:
        has = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this system
        has = {}
    return tuple(
        (name, features_of(needed))
        for name, needed in BASELINES.get(platform.machine(), ())
        if all(has.get(feature, False) for feature in needed)
    )


def make_stamp() -> str:
    """The name of all that compiled code depends on besides the processor and the types."""
    settings = [f"{name} {getattr(config, name, None)}" for name in SETTINGS]
    return store.stamp(numba.__version__, llvmlite.__version__, *settings)


class KernelCache(_Cache):  # type: ignore[misc]
    """One kernel's compiled versions, in the way numba asks for them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._compiling: dict[str, contextlib.ExitStack] = {}

    @property
    def cache_path(self) -> str | None:
        """The folder that new versions go to."""
        folder = store.find_writable()
        return None if folder is None else str(folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The version for these types; None where it must be compiled."""
        types, processor = _types(sig), target_context.codegen().magic_tuple()
        found = self._load(sig, types, processor, target_context)
        if found is not None:
            return found
        # Whoever compiles has the others of this host wait for it.
        stack = contextlib.ExitStack()
        folder, name = store.find_writable(), self._entry(types, processor)
        if folder is None:
            _warn()
        stack.enter_context(store.take_turn(folder and folder / make_stamp(), name))
        found = self._load(sig, types, processor, target_context)
        if found is not None:
            stack.close()
            return found
        stack.enter_context(_announce())
        self._compiling[types] = stack
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a version that has just been compiled."""
        types, folder = _types(sig), store.find_writable()
        with self._compiling.pop(types, contextlib.ExitStack()):
            if folder is None or data.lifted or data.library.has_dynamic_globals:
                return
            name = self._entry(types, data.codegen.magic_tuple())
            store.write(folder / make_stamp(), name, serialize.dumps(data._reduce()))

    def enable(self) -> None:
        """Nothing to do: it always is."""

    def disable(self) -> None:
        """Nothing to do: numba does not ask for it."""

    def flush(self) -> None:
        """Nothing to do: what is kept depends on all that could have changed."""

    def _entry(self, types: str, processor: tuple[str, ...]) -> str:
        return store.entry_name(self._name, types, *processor)

    def _load(self, sig: Any, types: str, processor: tuple[str, ...], context: Any) -> Any:
        for folder in store.find_readable():
            held = store.read(folder / make_stamp(), self._entry(types, processor))
            found = None if held is None else _rebuild(held, sig, context)
            if found is not None:
                return found
        if not use_ready or config.CPU_NAME:
            return None
        for name, features in find_baselines():
            entry = self._entry(types, (processor[0], name, features))
            held = store.read(store.READY / make_stamp(), entry)
            found = None if held is None else _rebuild(held, sig, context)
            if found is not None:
                return found
        return None


@cache
def _warn() -> None:
    warnings.warn(
        f"thetajoin: no folder for compiled kernels ({store.explain_unwritable()}), so each "
        "process compiles them anew: set NUMBA_CACHE_DIR to one that only you can write",
        stacklevel=2,
    )


def _types(sig: Any) -> str:
    return str(sigutils.normalize_signature(sig)[0])


def _rebuild(held: bytes, sig: Any, context: Any) -> Any:
    """The compiled function; None where this numba cannot read it or its types only look alike."""
    rtsys.initialize(context)  # what compiled code calls for arrays; numba's refresh() does more
    try:
        found = CompileResult._rebuild(context, *serialize.loads(held))
    except Exception:
        return None
    return found if found.signature.args == sigutils.normalize_signature(sig)[0] else None


_telling = threading.Lock()
_has_told = False


@contextlib.contextmanager
def _announce() -> Iterator[None]:
    """Say once that kernels are being compiled, to a terminal that waits for it."""
    timer = threading.Timer(SILENT, _tell)
    timer.daemon = True
    if not _has_told and sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell() -> None:
    global _has_told
    with _telling:
        if not _has_told:
            _has_told = True
            sys.stderr.write("thetajoin: compiling, once\n")
            sys.stderr.flush()


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Position of the lowest set bit of a non-zero 64-bit word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@intrinsic
def population(typingctx: Any, word: Any) -> Any:
    """Number of set bits of a 64-bit word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """A double's bits as an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def double_of(typingctx: Any, bits: Any) -> Any:
    """The double that has these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen
