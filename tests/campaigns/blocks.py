"""Numbered cases dealt out in blocks to processes, of which some may die of a case."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any


@dataclass(frozen=True)
class Work:
    """What is done to a block: a function of a module.

    `function` is called with `given`, the block's first number and the one after its last;
    `died` with `given` and the number of a case that has ended its process.
    """

    module: str
    function: str
    died: str
    given: tuple[Any, ...] = ()

    def load(self) -> Any:
        """The module."""
        return importlib.import_module(self.module)


def run_block(work: Work, start: int, stop: int) -> Any:
    """What a process does."""
    return getattr(work.load(), work.function)(*work.given, start, stop)


def tallies(work: Work, first: int, number: int, size: int, jobs: int) -> Iterator[Any]:
    """What comes of each block; one that ends its process is cut until it is one case.

    A single block, or a single job, is done here and now, where a debugger can follow.
    """
    module = work.load()  # what processes send back is of its classes
    stop = first + number
    waiting = [(start, min(start + size, stop)) for start in range(first, stop, size)]
    if min(jobs, len(waiting)) == 1:
        for block in waiting:
            yield run_block(work, *block)
        return
    while waiting:
        lost = []
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            running: dict[Future[Any], tuple[int, int]] = {
                pool.submit(run_block, work, *block): block for block in waiting
            }
            for done in as_completed(running):
                try:
                    yield done.result()
                except BrokenProcessPool:
                    lost.append(running[done])
        # Blocks that had not begun are lost with the others: only the first can have done it.
        lost.sort()
        for block in lost[: jobs + 1]:
            yield from _alone(module, work, *block)
        waiting = lost[jobs + 1 :]


def _alone(module: Any, work: Work, start: int, stop: int) -> Iterator[Any]:
    """A block in a process of its own, and in halves where that dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            yield pool.submit(run_block, work, start, stop).result()
            return
        except BrokenProcessPool:
            pass
    if stop - start == 1:
        yield getattr(module, work.died)(*work.given, start)
        return
    middle = (start + stop) // 2
    yield from _alone(module, work, start, middle)
    yield from _alone(module, work, middle, stop)
