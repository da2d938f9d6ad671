"""Settings for all tests."""

from hypothesis import settings

# How long an example takes says nothing on a machine that is busy with others.
settings.register_profile("reticent", deadline=None)
settings.load_profile("reticent")
