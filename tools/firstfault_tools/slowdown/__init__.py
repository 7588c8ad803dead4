"""What does a slow part of a run cost, and which remedy is the cheapest?"""
