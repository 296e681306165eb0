"""Rows of a file: the pages that are wanted next are kept, what misses is read in the order of the file."""
