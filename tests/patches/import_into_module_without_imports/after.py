"""Prints."""

import autotune_conv

print("x")
