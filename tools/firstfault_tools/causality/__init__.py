"""Which failure came first, and which are its consequences?"""
