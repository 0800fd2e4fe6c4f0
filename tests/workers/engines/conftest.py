"""What ranks load from this folder by its name alone is imported by them, and by no test run."""

collect_ignore = ["faulty_gpu.py"]
