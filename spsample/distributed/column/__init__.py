"""Owners draw, in a column group: the ranks that hold all rows of A between them.

The owner of a row samples, sums and extracts from it for the ranks of its group, and only what they asked for travels.
No column of a matrix is meant: those are drawn by the laws (`spsample.sparse`).
"""
