"""Fine-tune with a loop on accelerate: accelerate launch accelerate_loop.py"""

import torch
from accelerate import Accelerator
from chats import collate, load_model, load_texts, load_tokenizer
from torch.utils.data import DataLoader


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    tokenizer = load_tokenizer()
    rows = [{"input_ids": tokenizer(t, truncation=True, max_length=512)["input_ids"]} for t in load_texts()]
    loader = DataLoader(rows, batch_size=4, shuffle=True, collate_fn=collate)
    model = load_model(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
