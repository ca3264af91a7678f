"""A small shop whose tools a model may call: `python -m examples.shop` sends them recorded calls, right and wrong ones."""
