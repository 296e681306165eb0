"""Stages side by side: how many threads each gets, from what they are measured to take."""
