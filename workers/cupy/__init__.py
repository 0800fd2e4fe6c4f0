"""The CuPy device: the tasks of a plan as kernels on NVIDIA GPUs."""
