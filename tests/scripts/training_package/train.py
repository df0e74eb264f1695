"""Started as `python -m training_package.train`."""

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.randint(0, 50, (80, 8)), batch_size=4):
    loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item().hex())
print("end of the job")
