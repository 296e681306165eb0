"""What every room above the kernels uses: checks of arguments, arrays in, units, threads, available memory."""
