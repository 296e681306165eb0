"""Batches are copied to a device ahead of their use."""
