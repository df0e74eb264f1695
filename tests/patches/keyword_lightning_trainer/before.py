import lightning as L
from lightning.pytorch.loggers import CSVLogger


def main(task, data):
    trainer = L.Trainer(
        accelerator="gpu", devices=2,  # one node
        precision="32-true",
        logger=CSVLogger("logs"),
    )
    trainer.fit(task, data)
