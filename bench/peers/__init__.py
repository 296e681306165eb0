"""What is measured: one module per peer, run by `worker.py` in the peer's own interpreter.

A module has `PACKAGES`, the packages whose versions are reported (all must be importable), and `TASKS`: by name, a
function of `Inputs` and options that makes all preparations and returns the work. The work is a function without
arguments that does it once and returns numbers: how many `batches` it did, and whatever else it counted.
"""
