# A script.
from __future__ import annotations
from __future__ import division

import autotune_conv

# standard library
import os

print(os.name)
