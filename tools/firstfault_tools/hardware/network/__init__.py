"""What do links, ports, routes and bandwidth tests say?"""
