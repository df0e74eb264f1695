"""All plants, by name."""

from __future__ import annotations

import plants_data
import plants_kernels
import plants_losses
import plants_packing
from registry import PLANTS

__all__ = ["PLANTS", "plants_data", "plants_kernels", "plants_losses", "plants_packing"]
