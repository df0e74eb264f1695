"""Steps that sleep: how long depends on two variables, alone worse, together better."""

import os
import time

import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first, second = "FIRST" in os.environ, "SECOND" in os.environ
pause = 0.015 if first and second else 0.08 if first else 0.05
data = torch.utils.data.TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    time.sleep(pause)
    optimizer.step()
    optimizer.zero_grad()
