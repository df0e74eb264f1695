"""autotune: say why a training job is slow, patch a copy of it, and prove the speed-up."""

__version__ = "0.1.0"
