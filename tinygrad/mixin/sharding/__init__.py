"""Where tensors live.

placement.py       copied to a device, sharded over several
shards.py          from shards, and to shards
visualization.py   drawings of which device holds which block
"""
