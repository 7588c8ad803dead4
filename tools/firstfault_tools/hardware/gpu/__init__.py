"""What do the tools of GPUs and of other accelerators say?"""
