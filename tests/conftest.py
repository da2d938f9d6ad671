"""Settings for all tests."""

import os

from hypothesis import settings

# How long an example takes says nothing on a machine that is busy with others. The examples are the same in every run,
# so that a run tells about the code and not about luck; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("reticent", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reticent"))
