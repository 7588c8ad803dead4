"""What can be checked before a run starts, or before it grows?"""
