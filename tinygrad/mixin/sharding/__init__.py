"""Where tensors live.

placement.py       copied to a device, sharded over several
known_rows.py      gathers along a sharded axis by an index that is known
shards.py          from shards, and to shards
visualization.py   drawings of which device holds which block
"""
