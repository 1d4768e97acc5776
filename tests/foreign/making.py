"""Data and models of the programs, made here: nothing is downloaded."""

import random
from pathlib import Path

TEXT = (
    "a film about love and rain it was long but never dull the cast is bright sad and very "
    "funny we left early and slept well nothing here works twice"
)
WORDS = TEXT.split()
LETTERS = {"Basque": "aeixtkz", "Finnish": "aeiknlt", "Welsh": "dglwyfn"}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def make_all(root: Path) -> None:
    """Write what each of the programs reads."""
    drawn = random.Random(5)
    make_text(root / "data", drawn)
    make_names(root / "names", drawn)
    make_reviews(root / "reviews", drawn)


def make_text(directory: Path, drawn: random.Random) -> None:
    directory.mkdir()
    lines = (" ".join(drawn.choices(WORDS, k=20)) for _ in range(100))
    (directory / "wikitext-2.txt").write_text("\n".join(lines))


def make_names(directory: Path, drawn: random.Random) -> None:
    directory.mkdir()
    for language, letters in LETTERS.items():
        names = ("".join(drawn.choices(letters, k=drawn.randint(3, 9))) for _ in range(160))
        (directory / f"{language}.txt").write_text("\n".join(names))


def make_reviews(directory: Path, drawn: random.Random) -> None:
    for words, folder in ((WORDS[::2], "neg"), (WORDS[1::2], "pos")):
        (directory / folder).mkdir(parents=True)
        for number in range(80):
            text = " ".join(drawn.choices(words, k=drawn.randint(5, 12)))
            (directory / folder / f"{number}.txt").write_text(text)


def make_tiny_model(directory: Path) -> None:
    """Save a DistilBERT of two layers and its tokenizer."""
    import torch
    from transformers import (
        DistilBertConfig,
        DistilBertForSequenceClassification,
        DistilBertTokenizerFast,
    )

    directory.mkdir()
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, *dict.fromkeys(WORDS)]))
    tokenizer = DistilBertTokenizerFast(str(vocabulary))
    torch.manual_seed(3)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=64, n_layers=2, n_heads=4, hidden_dim=128,
        max_position_embeddings=32,
    )  # fmt: skip
    DistilBertForSequenceClassification(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
