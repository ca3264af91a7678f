"""Examples that run: each folder is a package of its own."""
