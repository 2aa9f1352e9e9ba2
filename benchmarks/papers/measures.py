"""The Prefap paper's measures of a partitioning (Table 2)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thetajoin.papers.partitionings import Keys, Partitioned

Loads = NDArray[np.int64]


@dataclass(frozen=True)
class Measures:
    """What a partitioning costs.

    cartesian_products: pairs compared. results: pairs that match, the least there can be.
    balance_in, balance_out: the largest load of a process, in elements received and pairs found,
    over the average load.
    """

    cartesian_products: int
    results: int
    balance_in: float
    balance_out: float

    @property
    def over_optimal(self) -> float:
        """Pairs compared for each pair found."""
        return self.cartesian_products / self.results if self.results else float("nan")


def count_results(left: Keys, right: Keys, op: str) -> int:
    """Pairs with ``left op right``; O(n log n)."""
    ordered = np.sort(right)
    if op in ("<", "<="):
        side = "right" if op == "<" else "left"
        return int((len(ordered) - np.searchsorted(ordered, left, side)).sum())  # type: ignore[call-overload]
    side = "left" if op == ">" else "right"
    return int(np.searchsorted(ordered, left, side).sum())  # type: ignore[call-overload]


def measure(left: Keys, right: Keys, op: str, made: Partitioned, processes: int) -> Measures:
    """Distribute the joined pairs of partitions over processes and measure the loads.

    A pair goes to the process with the least input so far, the largest pairs first.
    """
    sizes = made.left.sizes, made.right.sizes
    first, second = np.nonzero(made.pairs)
    inputs = sizes[0][first] + sizes[1][second]
    members = [_members(p.of, len(p.low)) for p in (made.left, made.right)]
    outputs = np.array(
        [
            count_results(left[members[0][i]], right[members[1][j]], op)
            for i, j in zip(first, second, strict=True)
        ],
        np.int64,
    )
    loads = spread(inputs, outputs, processes)
    return Measures(
        made.cartesian_products, count_results(left, right, op), *(balance(x) for x in loads)
    )


def _members(of: NDArray[np.intp], count: int) -> list[NDArray[np.intp]]:
    order = np.argsort(of, kind="stable")
    ends = np.searchsorted(of[order], np.arange(count + 1))
    return [order[ends[i] : ends[i + 1]] for i in range(count)]


def spread(inputs: Loads, outputs: Loads, processes: int) -> tuple[Loads, Loads]:
    """The input and output of each process."""
    loads = np.zeros((2, processes), np.int64)
    queue = [(0, process) for process in range(processes)]
    for at in np.argsort(-inputs, kind="stable"):
        _, process = heapq.heappop(queue)
        loads[0, process] += inputs[at]
        loads[1, process] += outputs[at]
        heapq.heappush(queue, (int(loads[0, process]), process))
    return loads[0], loads[1]


def balance(loads: Loads) -> float:
    """The largest load over the average; 1 is perfect."""
    total = loads.sum()
    return float(loads.max() * len(loads) / total) if total else 1.0
