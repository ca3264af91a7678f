"""Hold one module for each peer; each makes a peer's own tools of our functions and calls them by name.

A peer takes the lowest public path that an agent of that framework takes for one call: arguments in, validated, tool
run, answer out.
"""
