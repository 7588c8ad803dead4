"""What do the machine's own tools and its kernel say about GPUs, links, memory and disks?"""
