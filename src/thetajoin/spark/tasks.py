"""Functions over Arrow batches as tasks of Spark's Python workers, and what a worker keeps.

PySpark's workers collect garbage after every task. With pandas, numba and the compiled kernels
loaded there are some 180,000 objects to go through, none of which ever goes: 75 ms a task, over a
third of the processor time of workers whose tasks take a fifth of a second. So a task that ends
sets aside what its worker has loaded so far.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import DataType, StructField, StructType

from thetajoin import __version__

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# Objects that the collector may go through after each task, in some 3 ms.
FEW_OBJECTS = 10_000
# Where a session does not tell how many tasks run at once.
UNKNOWN_PARALLELISM = 4
_done = False
T = TypeVar("T")


def set_aside() -> None:
    """Exempt all objects so far from later collections, if they are many; once a worker."""
    global _done
    if _done or len(gc.get_objects()) <= FEW_OBJECTS:
        return
    _done = True
    gc.collect()
    gc.freeze()


def name_by_position(frame: Any) -> Any:
    """The frame with its columns named c0, c1, ...

    mapInArrow takes a name with a dot or a backtick for a path.
    """
    return frame.toDF(*[f"c{at}" for at in range(len(frame.columns))])


def map_batches(frame: Any, task: Task, schema: StructType) -> Any:
    """The frame's batches, partition by partition, through a task."""
    return frame.mapInArrow(wrap_task(task), schema)


def wrap_task(task: Task) -> Task:
    """A task that a worker without this package can load, and that then says what is missing.

    Spark sends a function defined inside another one as its code, and everything of a module's by
    name: `run` has nothing of this module's, and the task inside it is opened after the check. A
    broadcast in the task is sent with the first function that goes to Spark after the packing, so
    this one has to go at once.
    """
    packed, version = CloudPickleSerializer().dumps(task), __version__

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        try:
            import thetajoin

            there = f"has thetajoin {thetajoin.__version__}"
        except ImportError:
            there = "has no thetajoin"
        if there != f"has thetajoin {version}":
            raise RuntimeError(
                f"this worker runs {sys.executable}, which {there}: install thetajoin {version} "
                "there, or set PYSPARK_PYTHON (spark.pyspark.python) to a Python that has it"
            )

        from thetajoin.spark.tasks import add_offsets, open_task, set_aside

        yield from open_task(packed)(add_offsets(batch) for batch in batches)
        set_aside()

    return run


def add_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in which every array can be read.

    Spark 4.0 leaves out the only offset of an array of lists or texts that has no value, also of
    one inside another: whoever looks for it reads what is not there, and the worker may crash.
    """
    if batch.num_rows and not any(field.type.num_fields for field in batch.schema):
        return batch
    columns = [_with_offsets(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_offsets(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.array([], array.type)
    type_ = array.type
    if isinstance(array, pa.ExtensionArray) or array.offset:
        return array
    if pa.types.is_struct(type_):
        children = [array.field(at) for at in range(type_.num_fields)]
    elif pa.types.is_map(type_):
        fields = [type_.key_field, type_.item_field]
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    elif pa.types.is_list(type_):
        children = [array.values]
    else:
        return array
    buffers = array.buffers()[: 1 if pa.types.is_struct(type_) else 2]
    sound = [_with_offsets(child) for child in children]
    return pa.Array.from_buffers(
        type_, len(array), buffers, null_count=array.null_count, children=sound
    )


def open_task(packed: bytes) -> Task:
    """A task as it was before it was sent."""
    task: Task = CloudPickleSerializer().loads(packed)
    return task


def find_context(session: Any) -> Any | None:
    """A session's context, if it has one."""
    try:
        return session.sparkContext
    except Exception:  # Spark Connect has none, and says so in its own way
        return None


def parallelism(session: Any) -> int:
    """Tasks that run at once, as far as a session tells."""
    context = find_context(session)
    return UNKNOWN_PARALLELISM if context is None else int(context.defaultParallelism)


def make_schema(**types: DataType) -> StructType:
    """A schema, without having Spark parse one."""
    return StructType([StructField(name, type_) for name, type_ in types.items()])


class Remembered(OrderedDict[Hashable, T]):
    """The few latest values by key; older ones are dropped."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Hashable, value: T) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made if it is missing."""
        if key not in self:
            self[key] = make()
        return self[key]
