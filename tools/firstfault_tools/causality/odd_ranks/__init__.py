"""Which rank did, said or held something else than all others?"""
