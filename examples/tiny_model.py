"""Make a tiny model of Hugging Face transformers to register: docs/transformers.md.

python3 -m examples.tiny_model PATH    # new weights, where people have trained ones
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from examples.directories import JUDGEMENTS, NOUNS


def write(root: Path) -> None:
    """Write a BERT of two layers, and a tokenizer for the words of `directories.reviews`."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "the", "was", "is", "very", *NOUNS, *JUDGEMENTS[0], *JUDGEMENTS[1]]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=words[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": words[0], "unk_token": words[1]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(root)
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    BertModel(config).save_pretrained(root)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
