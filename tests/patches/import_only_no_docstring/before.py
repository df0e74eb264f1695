# A script.
from __future__ import annotations
from __future__ import division

# standard library
import os

print(os.name)
