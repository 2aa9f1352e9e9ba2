"""The worked examples of the SPO-Join paper, sections 4.1 to 4.3, figures 3 to 5.

The figures themselves are drawings; the text gives the probing tuples, the positions they are found
at and the results. Each stored table below is reconstructed so that all of those hold; what the
text states is asserted, what is made up is only there to fill the places between.

Q1: DC1.RP < DC2.RP AND DC1.CP > DC2.CP (racks and cooling).
Q2: trip_distance1 > trip_distance2 AND trip_fare1 < trip_fare2 (a self-join).
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import thetajoin as tj

Q1 = "l.rp < r.rp AND l.cp > r.cp"
Q2 = "l.dist > r.dist AND l.fare < r.fare"


def data_center(*rows):
    return pa.table(
        {
            "id": [row[0] for row in rows],
            "rp": [row[1] for row in rows],
            "cp": [row[2] for row in rows],
        }
    )


def found(result, left="id", right="id_right"):
    return sorted(zip(result[left].to_pylist(), result[right].to_pylist(), strict=True))


# --- Figure 3: the mutable part ------------------------------------------------------------------

# From the text: the tuple 202 has RP 3000 and CP 500; the first leaf above 3000 is 3300; a DC2
# tuple with a cooling of exactly 500 does not satisfy `500 > CP`. Made up: all other values.
FIGURE_3_PROBE = data_center(("202", 3000, 500))
FIGURE_3_DC2 = data_center(
    ("s1", 2900, 300),
    ("s2", 3000, 100),
    ("s3", 3300, 400),
    ("s4", 3300, 500),
    ("s5", 3600, 499),
    ("s6", 4100, 700),
)


def test_figure_3():
    rack = tj.join(FIGURE_3_PROBE, FIGURE_3_DC2, "l.rp < r.rp")
    assert {s for _, s in found(rack)} == {"s3", "s4", "s5", "s6"}  # 3300 and everything above
    cooling = tj.join(FIGURE_3_PROBE, FIGURE_3_DC2, "l.cp > r.cp")
    assert {s for _, s in found(cooling)} == {"s1", "s2", "s3", "s5"}  # everything below 500
    both = tj.join(FIGURE_3_PROBE, FIGURE_3_DC2, Q1)  # the AND of the two bit sets
    assert found(both) == [("202", "s3"), ("202", "s5")]


@pytest.mark.parametrize("head_rows", [0, 1, 100], ids=["merged", "merging", "head"])
def test_figure_3_as_a_stream(head_rows):
    join = tj.StreamJoin(Q1, window=tj.CountWindow(10), head_rows=head_rows, merge="inline")
    assert join.push(right=FIGURE_3_DC2).num_rows == 0
    assert found(join.push(left=FIGURE_3_PROBE)) == [("202", "s3"), ("202", "s5")]


# --- Figure 4: self-join -------------------------------------------------------------------------

# From the text: four stored trips; the new trip has distance 14 and fare 320. 14 is found at
# position 3 of the sorted distances, 320 is not among the fares and belongs at position 3. The
# permutation has 1 and 4 from position 3 on, and the scan below position 3 finds bit 1. Made up:
# the values that have these ranks.
FIGURE_4_DIST = [10, 12, 14, 18]  # in the order of distance, ranks 1 to 4
FIGURE_4_FARE = [350, 200, 300, 410]  # sorted: 200 (rank 2), 300 (3), 350 (1), 410 (4)
FIGURE_4_NEW = {"id": "new", "dist": 14, "fare": 320}


def trips():
    stored = [
        {"id": f"rank {i + 1}", "dist": dist, "fare": fare}
        for i, (dist, fare) in enumerate(zip(FIGURE_4_DIST, FIGURE_4_FARE, strict=True))
    ]
    return stored


def test_figure_4_reconstruction():
    by_fare = sorted(range(4), key=lambda i: FIGURE_4_FARE[i])
    permutation = [i + 1 for i in by_fare]
    assert sorted(FIGURE_4_DIST).index(14) + 1 == 3
    assert sum(fare < 320 for fare in FIGURE_4_FARE) + 1 == 3
    assert set(permutation[2:]) == {1, 4}


@pytest.mark.parametrize("window", [None, tj.CountWindow(4), tj.CountWindow(10, slide=5)])
def test_figure_4(window):
    table = pa.Table.from_pylist([*trips(), FIGURE_4_NEW])
    got = found(tj.self_join(table, Q2, window=window))
    assert [pair for pair in got if "new" in pair] == [("new", "rank 1")]


def test_figure_4_all_pairs():
    """Both roles, worked out by hand: longer and cheaper on the left."""
    got = found(tj.self_join(pa.Table.from_pylist([*trips(), FIGURE_4_NEW]), Q2))
    assert got == [("new", "rank 1"), ("rank 2", "rank 1"), ("rank 3", "rank 1")]


# --- Figure 5: two-way join ----------------------------------------------------------------------

# From the text, for the tuple (rack 1400, cooling 3000) of DC1: of the DC2 tuples in the order of
# cooling, the first two are below 3000 and have the rack ranks 1 and 3; the search for rack 1400
# says to scan from rank 3 on; the result is s3. 1800 and 3500 are values of DC1 met by the two
# searches. Made up: the DC2 values, and the rest of DC1's.
FIGURE_5_DC1 = data_center(("r1", 1100, 2600), ("r2", 1800, 3200), ("r3", 2100, 3500))
FIGURE_5_DC2 = data_center(("s1", 900, 2000), ("s2", 1300, 3600), ("s3", 1900, 2500))
FIGURE_5_NEW_R = data_center(("new", 1400, 3000))
FIGURE_5_NEW_S = data_center(("new", 2100, 2700))


def test_figure_5_reconstruction():
    rows = FIGURE_5_DC2.to_pylist()
    by_rack = sorted(rows, key=lambda row: row["rp"])
    by_cooling = sorted(rows, key=lambda row: row["cp"])
    permutation = [by_rack.index(row) + 1 for row in by_cooling]
    assert permutation[:2] == [1, 3]
    assert sum(row["cp"] < 3000 for row in rows) == 2
    assert sum(row["rp"] <= 1400 for row in rows) + 1 == 3
    assert sorted(FIGURE_5_DC1["cp"].to_pylist()).index(3500) + 1 == 3


def test_figure_5_tuple_of_dc1():
    assert found(tj.join(FIGURE_5_NEW_R, FIGURE_5_DC2, Q1)) == [("new", "s3")]


def test_figure_5_tuple_of_dc2():
    # Racks of DC1 below 2100: r1 and r2 (not r3, which ties); cooling above 2700: r2 and r3.
    assert found(tj.join(FIGURE_5_DC1, FIGURE_5_NEW_S, Q1)) == [("r2", "new")]


@pytest.mark.parametrize("head_rows", [0, 1, 100], ids=["merged", "merging", "head"])
def test_figure_5_as_a_stream(head_rows):
    """Both stored tables first, then a new tuple of each side, each exactly once."""
    join = tj.StreamJoin(Q1, window=tj.CountWindow(100), head_rows=head_rows, merge="inline")
    # Cooler than 2600 are s1 and s3; only s3 has a rack above those of r1 and r2, none above r3's.
    assert found(join.push(FIGURE_5_DC1, FIGURE_5_DC2)) == [("r1", "s3"), ("r2", "s3")]
    assert found(join.push(left=FIGURE_5_NEW_R)) == [("new", "s3")]
    # The new tuple of DC2 meets r2 and now also the new tuple of DC1 (1400 < 2100, 3000 > 2700).
    assert found(join.push(right=FIGURE_5_NEW_S)) == [("new", "new"), ("r2", "new")]
