"""Figures of the five source papers: a file for each."""
