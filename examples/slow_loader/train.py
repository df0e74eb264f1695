"""Fine-tune a tiny chat model on the end of long conversations, with loss on the replies only.

python train.py --output-dir out
"""

import argparse
from pathlib import Path

import chitchat_dataset
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT_TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"


class ReplyDataset(Dataset):
    """The last `length` tokens of long chats; only the assistant's words carry a label."""

    def __init__(self, tokenizer, length):
        self.tokenizer = tokenizer
        self.length = length
        self.chats = []
        for chat in chitchat_dataset.Dataset().values():
            turns = [" ".join(m["text"] for m in turn) for turn in chat["messages"]]
            if sum(len(turn) for turn in turns[:32]) < 8 * length:
                continue
            roles = ["user", "assistant"]
            self.chats.append([{"role": roles[i % 2], "content": t} for i, t in enumerate(turns[:32])])

    def __len__(self):
        return len(self.chats)

    def __getitem__(self, index):
        messages = self.chats[index]
        labels = []
        for i, message in enumerate(messages):
            # Tokens of the chat up to and with this message: what is new belongs to this message.
            ids = self.tokenizer.apply_chat_template(messages[: i + 1], return_dict=False)
            new = ids[len(labels) :]
            labels += new if message["role"] == "assistant" else [-100] * len(new)
        return {
            "input_ids": torch.tensor(ids[-self.length :]),
            "labels": torch.tensor(labels[-self.length :]),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=None)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-dir", default="output")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(Path(__file__).parent / "tokenizer.json"), pad_token="<|pad|>", eos_token="<|end|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    dataset = ReplyDataset(tokenizer, args.length)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    model.train()
    running = torch.zeros((), device=device)
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {running.item() / 20:.4f}", flush=True)
                running.zero_()
            if step == args.max_steps:
                break
        if step == args.max_steps:
            break
    model.save_pretrained(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
