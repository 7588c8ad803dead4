"""Does the run learn what it should: loss, gradients, learning rate, rewards, samples?"""
