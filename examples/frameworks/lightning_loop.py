"""Fine-tune with Lightning: python lightning_loop.py"""

import lightning
import torch
from chats import collate, load_model, load_texts, load_tokenizer
from torch.utils.data import DataLoader


class Chat(lightning.LightningModule):
    def __init__(self, vocab_size):
        super().__init__()
        self.model = load_model(vocab_size)

    def training_step(self, batch, index):
        loss = self.model(**batch).loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-4)


def main():
    tokenizer = load_tokenizer()
    rows = [{"input_ids": tokenizer(t, truncation=True, max_length=512)["input_ids"]} for t in load_texts()]
    loader = DataLoader(rows, batch_size=4, shuffle=True, collate_fn=collate)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(Chat(len(tokenizer)), loader)


if __name__ == "__main__":
    main()
