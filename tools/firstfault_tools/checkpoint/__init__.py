"""How big is a checkpoint, how often should one be written, and is this one complete?"""
