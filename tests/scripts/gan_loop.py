"""A generator and a discriminator, each with its optimizer: two updates on every batch."""

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
generator = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 12))
critic = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
generator_step = torch.optim.Adam(generator.parameters(), lr=1e-3)
critic_step = torch.optim.Adam(critic.parameters(), lr=1e-3)
score = torch.nn.functional.binary_cross_entropy_with_logits

for real in DataLoader(torch.randn(120, 12), batch_size=6):
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    made = generator(torch.randn(len(real), 8))
    critic_step.zero_grad()
    loss = score(critic(real), ones)
    loss.backward()
    print("loss", loss.item().hex())
    score(critic(made.detach()), zeros).backward()
    critic_step.step()
    generator_step.zero_grad()
    score(critic(made), ones).backward()
    generator_step.step()
print("end of the job")
