"""Random tokens, all supervised, with the lengths of chat data: lognormal, clipped to 64 ... `longest`."""

from __future__ import annotations

import numpy as np


class Rows:
    def __init__(
        self, count: int = 600, vocabulary: int = 248320, longest: int = 8192, mean: float = 6.95
    ) -> None:
        drawn = np.random.default_rng(0).lognormal(mean, 0.5, count)
        self.vocabulary, self.lengths = vocabulary, np.clip(drawn, min(64, longest // 8), longest).astype(int)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        return {"input_ids": np.random.default_rng(i).integers(0, self.vocabulary, self.lengths[i])}
