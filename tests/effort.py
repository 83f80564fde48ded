"""How much is tried: `make test` takes a part of what repeats itself, `make test-thorough` all of it."""

import os

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
