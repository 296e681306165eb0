"""Helpers of every room above the kernels: checks of arguments, conversion of arrays, units, threads, memory."""
