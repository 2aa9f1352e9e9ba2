"""Importing this module gives every DataFrame of pandas an accessor, `df.thetajoin`.

>>> import pandas as pd
>>> import thetajoin.pandas
>>> here, there = pd.DataFrame({"x": [1, 5]}), pd.DataFrame({"y": [3]})
>>> here.thetajoin.join(there, "l.x < r.y").to_dict("list")
{'x': [1], 'y': [3]}
"""

from __future__ import annotations

import pandas

from thetajoin.accessor import Accessor

pandas.api.extensions.register_dataframe_accessor("thetajoin")(Accessor)
