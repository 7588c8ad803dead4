"""What can this node do right now, and which node or GPU is the odd one out?"""
