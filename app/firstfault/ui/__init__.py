"""What people see: the terminal and the page."""
