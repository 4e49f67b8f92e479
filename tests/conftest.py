"""Makes the profile of a quick run known to Hypothesis before anything is collected: `--hypothesis-profile quick`."""

from hypothesis import settings

from tests.helpers.examples import QUICK

settings.register_profile("quick", max_examples=QUICK)
