"""Steps that no other thread can come between, which numba does not offer for processors."""

from __future__ import annotations

import os
from typing import Any

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

if config.DISABLE_JIT:

    def exchange(array: Any, index: Any, value: Any) -> int:
        """Put a value into an element and return the one before."""
        before = int(array[index])
        array[index] = value
        return before

    def fetch_add(array: Any, index: Any, value: Any) -> int:
        """Add to an element and return what it was before."""
        before = int(array[index])
        array[index] += value
        return before

    def give_way() -> int:
        """Let another thread have this core."""
        os.sched_yield()
        return 0

else:

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
    give_way = types.ExternalFunction("sched_yield", types.int32())
