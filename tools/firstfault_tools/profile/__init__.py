"""Where do a step's time and a GPU's memory go? Readers of profiler traces and memory snapshots."""
