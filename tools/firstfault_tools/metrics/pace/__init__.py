"""Is the run as fast as it can be, and which part, rank or host takes the time?"""
