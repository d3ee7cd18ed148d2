"""Layout arithmetic, which knows no graph.

In: shapes, tensor axes and device names. Out: layouts, regions of arrays, and bytes that must move.
"""

from tinygrad.sharding.layout import Partial, Placement, Region, Shape, Sharding, ShardingError

__all__ = ["Partial", "Placement", "Region", "Shape", "Sharding", "ShardingError"]
