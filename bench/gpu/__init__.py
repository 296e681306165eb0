"""Measurements on a GPU: `python bench/gpu/run.py --help`; README.md says what each shows."""
