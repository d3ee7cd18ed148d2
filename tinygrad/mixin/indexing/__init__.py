"""Indexing by slices and by tensors.

getitem.py      `x[...]` and `x[...] = v`
index_view.py   an index parsed to a range of each axis
index_axes.py   which axes are batch axes and which are gathered
gather.py       gather and scatter along an axis, one-hot, selection by a mask
sorting.py      sort, argsort and top-k
"""
