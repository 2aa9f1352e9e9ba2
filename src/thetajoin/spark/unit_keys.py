"""Keys of the units: values that Spark's hash sends to partitions of their own.

Spark puts a row into partition ``hash(key) mod P`` (Murmur3 with seed 42). The hash of
``UNIT_KEYS[u]`` is `u` modulo 28,828,800, which every P up to 16 divides, and 32, 48, 64, 100, 128
and 200 too: with such a P unit `u` is in partition ``u mod P``. With others (17, 19, 23) units may
share a partition.
"""

from __future__ import annotations

UNIT_KEYS = (
    2126800,
    26487196,
    104525584,
    49352721,
    47469263,
    132227313,
    35243864,
    13887642,
    26844092,
    4926251,
    8037475,
    13735368,
    19942253,
    5615036,
    10363671,
    40164799,
    185348,
    5972625,
    35304237,
    78232173,
    2292860,
    3165310,
    40684955,
    5296722,
    16235168,
    42390872,
    24722981,
    54761506,
    18203886,
    17515319,
    6946815,
    13329417,
    89076697,
    84829997,
    34266141,
    10875158,
    41476968,
    6617398,
    37817249,
    16135453,
    62043744,
    6103088,
    36963911,
    16640930,
    6654649,
    37043828,
    14356677,
    5604911,
    4547966,
    50557467,
    1384498,
    2525172,
    4695397,
    140494,
    10060171,
    1977745,
    42223354,
    18821828,
    4735296,
    58618287,
    36089462,
    3054485,
    6125666,
    8633222,
)
MODULUS = 2**7 * 3**2 * 5**2 * 7 * 11 * 13


def spark_hash(key: int) -> int:
    """Spark's hash of an int.

    >>> spark_hash(UNIT_KEYS[3]) % MODULUS
    3
    """
    mask = 0xFFFFFFFF

    def rotate(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (32 - bits))) & mask

    k = rotate(key * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
