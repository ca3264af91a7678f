"""Measure callgate beside its peers: `python -m bench`, or `make bench` in an environment of its own."""
