"""Rows that a GPU gathers: the hottest in its memory, the others in memory that it reads, or behind another source."""
