"""Prints."""

print("x")
