# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the tests find the built libswell: SWELL_STAGE is where Swell is installed for them."""

import os

import pytest

STAGE = os.environ.get("SWELL_STAGE", "")
LIBRARY = os.path.join(STAGE, "lib", "libswell.so.1") if STAGE else ""

needs_library = pytest.mark.skipif(not os.path.exists(LIBRARY), reason="SWELL_STAGE names no folder with lib/libswell.so.1")
needs_live_host = pytest.mark.skipif(not os.path.exists(os.path.join(STAGE, "..", "tests", "unit", "live_host")) or not os.path.exists(LIBRARY),
                                     reason="SWELL_STAGE is not a folder `stage` of a build folder")
if os.path.exists(LIBRARY):
    os.environ["SWELL_LIBRARY"] = LIBRARY
