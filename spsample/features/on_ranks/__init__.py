"""Rows that ranks have for each other: a block row each, or copies that are read from the nearest."""
