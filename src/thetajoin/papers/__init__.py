"""Window structures and partitionings that papers describe, to compare with.

The product needs none of it. `thetajoin.paper_options` imports it when a caller names one.
"""
