"""What differs between two runs, and which difference can explain what is worse?"""
