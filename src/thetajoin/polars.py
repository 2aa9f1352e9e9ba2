"""Importing this module gives DataFrames and LazyFrames of Polars a namespace, `df.thetajoin`.

>>> import polars as pl
>>> import thetajoin.polars
>>> here, there = pl.LazyFrame({"x": [1, 5]}), pl.DataFrame({"y": [3]})
>>> here.thetajoin.join(there, "l.x < r.y").collect().to_dict(as_series=False)
{'x': [1], 'y': [3]}
"""

from __future__ import annotations

import polars

from thetajoin.accessor import Accessor

polars.api.register_dataframe_namespace("thetajoin")(Accessor)
polars.api.register_lazyframe_namespace("thetajoin")(Accessor)
