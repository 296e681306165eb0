"""Measurements of the library, and of what it would do on more ranks than there are here."""
