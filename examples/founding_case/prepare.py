"""Write data/chat.npz: 207,865 rows of real chat text in Qwen tokens, with UltraChat-like lengths.

    pip install --no-deps chitchat-dataset==0.9.0 dashscope==2.0.2 && pip install tiktoken==0.14.0
    python prepare.py

UltraChat-200k itself is not shipped by any package. Its published size gives a mean of about 1,270 tokens
a row; its spread is modelled as lognormal with sigma 0.55, clipped to 96..8,192 tokens. The text is the
chitchat corpus in ChatML, one long stream that is cut into rows and read again from the start when it ends.
The stream is stored once, so the file is a few MB and train.py needs no tokenizer.
"""

import argparse
import base64
import math
from importlib.metadata import distribution
from pathlib import Path

import chitchat_dataset
import numpy as np
import tiktoken

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}


def load_tokenizer():
    path = distribution("dashscope").locate_file("dashscope/resources/qwen.tiktoken")
    ranks = {}
    for line in Path(str(path)).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding("qwen", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL)


def chat_texts():
    for chat in chitchat_dataset.Dataset().values():
        turns = [" ".join(message["text"] for message in turn) for turn in chat["messages"]]
        if len(turns) < 2:
            continue
        roles = ["user", "assistant"]
        yield "".join(f"<|im_start|>{roles[i % 2]}\n{turn}<|im_end|>\n" for i, turn in enumerate(turns))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=207_865)
    parser.add_argument("--mean-tokens", type=float, default=1270)
    parser.add_argument("--sigma", type=float, default=0.55)
    parser.add_argument("--shortest", type=int, default=96)
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default=str(Path(__file__).parent / "data" / "chat.npz"))
    args = parser.parse_args()

    tokenizer = load_tokenizer()
    chats = tokenizer.encode_batch(list(chat_texts()), allowed_special="all")
    stream = np.concatenate([np.asarray(ids, dtype=np.int32) for ids in chats])
    vocabulary, compact = np.unique(stream, return_inverse=True)
    if len(vocabulary) > 2**16:
        raise SystemExit(f"{len(vocabulary)} different tokens do not fit 16 bits")

    rng = np.random.default_rng(args.seed)
    mu = math.log(args.mean_tokens) - args.sigma**2 / 2
    lengths = rng.lognormal(mu, args.sigma, args.rows).clip(args.shortest, args.longest).astype(np.uint16)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)[:-1]]) % (len(stream) - args.longest)

    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        output,
        stream=compact.astype(np.uint16),
        vocabulary=vocabulary.astype(np.int32),
        starts=starts.astype(np.uint32),
        lengths=lengths,
    )
    print(
        f"{output}: {output.stat().st_size / 2**20:.1f} MiB, stream of {len(stream):,} tokens, "
        f"{len(vocabulary):,} different, {args.rows:,} rows, mean {lengths.mean():.0f}, "
        f"p50 {np.median(lengths):.0f}, p95 {np.percentile(lengths, 95):.0f}, longest {lengths.max()}"
    )


if __name__ == "__main__":
    main()
