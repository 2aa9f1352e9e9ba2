"""The laboratory: window structures and partitionings that papers compare.

The product never needs any of it; `thetajoin.registry` is the door through which a caller can ask
for a structure or a partitioning by its name.
"""
