"""Hash: the mutable part that SPO-Join compares with, a hash set in place of each bitset."""

from __future__ import annotations

from thetajoin.papers.structures.bitset import Bitset


class Hash(Bitset):
    """A B+-tree for each key; each predicate's rows form a hash set; the sets are intersected.

    f_b: fan-out of the trees.
    """

    name = "hash"
    meet = "hash"
