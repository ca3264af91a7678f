"""Where a tool's body runs: on the event loop, in a thread, in a process; and how its caller waits for it."""
