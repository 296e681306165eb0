"""Measurements of spsample: ``spsample bench``.

A case (`cases/`) declares what is measured, a peer (`peers/`) who else does it, a paper (`papers/`) which cases show
its figures. Modules here import each other relatively: a peer's interpreter, which lacks spsample, loads them by
another name.
"""
