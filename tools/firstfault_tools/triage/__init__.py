"""What must be captured from a running or just-dead job before it is gone, and in which order?"""
