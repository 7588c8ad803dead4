"""What do the kernel, the controller and the limits of a host say?"""
