"""How kernels are compiled, and the machine instructions numba does not offer.

With ``NUMBA_DISABLE_JIT=1`` every kernel runs as ordinary Python, which is how the tests step
through them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from thetajoin.kernels.caching import compiled

kernel = partial(compiled, nogil=True, error_model="numpy")
inlined = partial(compiled, nogil=True, error_model="numpy", inline="always")

if config.DISABLE_JIT:

    def trailing_zeros(word: Any) -> int:
        """Position of the lowest set bit of a non-zero 64-bit word."""
        value = int(word)
        return (value & -value).bit_length() - 1

    def population(word: Any) -> int:
        """Number of set bits of a 64-bit word."""
        return int(word).bit_count()

    def bits_of(value: Any) -> np.int64:
        """A double's bits as an integer."""
        return np.float64(value).view(np.int64)

    def double_of(bits: Any) -> np.float64:
        """The double that has these bits."""
        return np.int64(bits).view(np.float64)

else:

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


ONE = np.uint64(1)
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
WORD_MASK = np.uint64(63)
