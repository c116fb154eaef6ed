"""Work as teams have it: short and long jobs in one queue. `python -m benchmarks.mixed`."""
