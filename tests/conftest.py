"""Settings that all tests share."""

from hypothesis import settings

# No deadline for one example: on a busy machine it would judge the machine. In CI hypothesis loads its own profile "ci",
# which has none either and draws the same examples each time.
settings.register_profile("default", deadline=None, print_blob=True)
