"""Lightning with manual optimization: two models, two optimizers, two backwards a batch."""

import logging
import warnings

import lightning
import torch
from odd_loops import DATA, Net, loss_of
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Both(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.one, self.other = Net(), Net()

    def training_step(self, batch, index):
        for model, optimizer in zip((self.one, self.other), self.optimizers()):
            optimizer.zero_grad()
            self.manual_backward(loss_of(model, batch))
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (self.one, self.other)]


lightning.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
).fit(Both(), DataLoader(DATA, 4))
print("end of the job")
