"""Which rank is it that a host, GPU, pod or process id stands for?"""
