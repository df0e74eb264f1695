"""A LightningModule trained by Lightning's Trainer; SIGTERM and SIGUSR1 handlers are Lightning's own."""

import logging
import warnings

import lightning
import torch
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Task(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.model(batch).flatten(0, 1), batch.flatten())
        print("loss", loss.item().hex())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


lightning.seed_everything(0, verbose=False)
trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="cpu",
    accumulate_grad_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Task(), DataLoader(torch.randint(0, 50, (112, 8)), batch_size=4))
print("end of the job")
