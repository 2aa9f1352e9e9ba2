"""Atomic steps as compiled kernels call them."""

from __future__ import annotations

import os
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj


def _step(operation: str) -> Any:
    def typed(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            held = arrayobj.make_array(signature.args[0])(context, builder, value=args[0])
            place = cgutils.gep_inbounds(builder, held.data, args[1])
            return builder.atomic_rmw(operation, place, args[2], "seq_cst")

        return types.int64(array, types.int64, types.int64), codegen

    return typed


exchange = intrinsic(_step("xchg"))
fetch_add = intrinsic(_step("add"))
# What the C libraries call it; each is in every process of its system.
give_way = types.ExternalFunction(
    "SwitchToThread" if os.name == "nt" else "sched_yield", types.int32()
)
