"""Backend `cuda`: CUDA kernels, compiled at run time by NVRTC, on arrays of CuPy."""
