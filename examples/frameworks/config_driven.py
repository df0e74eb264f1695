"""Fine-tune from a file of settings: python config_driven.py train.yaml"""

import sys

import torch
import yaml
from chats import collate, load_model, load_texts, load_tokenizer
from torch.utils.data import DataLoader


def main():
    with open(sys.argv[1]) as file:
        settings = yaml.safe_load(file)
    tokenizer = load_tokenizer()
    rows = [{"input_ids": tokenizer(t, truncation=True, max_length=512)["input_ids"]} for t in load_texts()]
    loader = DataLoader(rows, shuffle=True, collate_fn=collate, **settings["loader"])
    model = load_model(len(tokenizer), settings["model"]["attn_implementation"])
    optimizer = torch.optim.AdamW(model.parameters(), **settings["optimizer"])
    model.train()
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
