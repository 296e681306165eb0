"""Owners draw: the rows' owners sample, sum and extract, and only what was asked for travels."""
