"""Run the demo: `python -m examples.shop`."""

import sys

from examples.shop.demo import main

if __name__ == "__main__":
    sys.exit(main())
