"""Who held or used the memory that ran out, and for which work?"""
