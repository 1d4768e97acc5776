"""What of the settings and of the code is part of the name of a release.

A release is named by everything that its noise follows from (ADR 21), so also by digests of source
files. Where such a file changes, a run from before would release its next steps under new names:
with other noise, in addition to what it spent. Most edits change no release: moves, other names,
comments, docstrings, annotations. FILES has, for each file, its digest as it is now and the digest
that names contain, which such an edit leaves as it was.

tests/federated/test_release_names.py fails after every edit of a file, and says what to enter.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from blake3 import blake3

from trainops.kinds.federated.options import FederatedOptions

# What draws noise and samples, and what they are added to, beside the recipe's own code.
CODE = (
    "rng", "private", "clipping", "fast.ghost_clipping", "fast.losses", "fast.optimizer",
    "local_training", "server", "schedule", "strategies.fedprox",
)  # fmt: skip
# What of the config changes nothing in a release: how long the run is, and how it is kept.
IRRELEVANT = {
    "rounds", "checkpoint", "restart", "limits", "resources", "monitor", "mode", "device",
    "threads", "deterministic", "exact", "placement", "labels", "round_timeout",
}  # fmt: skip
# By module of this package: the digest of the file as it is, and the digest that names contain:
# that of version 0.1.0, or of the first version of a later file.
FILES = {
    "rng": (
        "3cef02a8e32b7802a2dfbff682c48955fee0b531f302ac926200a54738eeb0e1",
        "4635a31e6e96c1248c20ac78d325d3ba610e147d4c0d99e248c8e08adc7f7a8a",
    ),
    "private": (
        "0b7a509119d1481fa4855a9ff1442ffacee678e9737e01f9900c0ce4d95e2de1",
        "b636d13356af2e8c71cea06283be9c9792f4e3cfa21be83b0e09f86bab45de74",
    ),
    "clipping": (
        "b40db9841e8f03b9a6664285ba84cc4a5d282f6e743e5c3c45b9522bd061e35d",
        "b40db9841e8f03b9a6664285ba84cc4a5d282f6e743e5c3c45b9522bd061e35d",
    ),
    "fast.ghost_clipping": (
        "bdcbe5e68a2f996c86a3bda0194a95857bdac23bc1fac008c9c49a294dc14ef4",
        "63633c264aadc7e4e4a33ec66da315d392b35d8e3a82ffe05d3507aa511d78d2",
    ),
    "fast.losses": (
        "ed30601da3e268b62f53861a4a82070fc9c1ae89ae13d179f38eddef6e0ee2cc",
        "33d7c8293acefd6f99f7b26262feb858e5979d053727d509c0e98d85be4c09da",
    ),
    "fast.optimizer": (
        "781420e9fbfb84513b8be0535e44d15c844e9a668329d7351c9447211e895c3a",
        "37db34b9f50b14a1ecd7d8fbf0b5c29cfb2d7a1d9f1bc2a28f02df2a97376b42",
    ),
    "local_training": (
        "65b61fed26ce0a1475dd79f4313e4d17dffa4ff696c2b81c32984de044e223ed",
        "318ad1a16b8c3d3078af7d042603438e3d90143bf3a194ecd37a94360ad834b3",
    ),
    "server": (
        "d446ac6adb935be223f3da73c2f687f61e8eaabf62851f89e45876fa25650d7a",
        "2bb43b7ac8609b16bdcad83eff35c5599e728e88bb2ffe18cb9ecf9cc6381148",
    ),
    "schedule": (
        "eea904d8b2ef3928035faa4011db141839ce0f104df9da3d98b4d57c97884f87",
        "a8eeac502f6c80bc713184412ad8cba4cfd503c898ce04710f1939f46bebb7ff",
    ),
    "strategies.fedprox": (
        "dd470ae7a843824afd07be7b7766016cb5f0df539b7e70d53a709682cee334a8",
        "5840428b3a78ec7cc1dce2391c36ad2cd23fad5e94c210a68efc02c553831b83",
    ),
    "accounting": (
        "1c064ba0da68c4b79a14f2dfa3f66692149487a248d763c4d8bad11772932017",
        "1c064ba0da68c4b79a14f2dfa3f66692149487a248d763c4d8bad11772932017",
    ),
    "prv_accountant": (
        "ce010fb5a14f72eb043bd002593c84f6ce027e9bf76d488762a21eed8cb51236",
        "aeb701fa8993add0d7f770da208830a1f9dd4b0020f5a353a9d9e157e747e868",
    ),
    "plain": (
        "7b869929092f73900e62c3be69f381c6c2666a5a91b75524b8145fd0fe222f8d",
        "7b869929092f73900e62c3be69f381c6c2666a5a91b75524b8145fd0fe222f8d",
    ),
    "recipes.digits_model": (
        "27e23f39d331dcf17220d62e0785d7eb61d5172c30bd42a07934089cce531593",
        "7137510329009d0a3f83c257c3d5c5d1e1c128f74552a9316885bd4334851379",
    ),
    "recipes.images_model": (
        "eba556e4d83c8efdd85f82fbe0730113b449ca74af753137f0cb649cec186b83",
        "fc5e107dc927046b23c76c8a9d7302fb1ef5d610f3159e070867f7718eb20ab1",
    ),
    "recipes.segmentation_model": (
        "e2381e1b0e08af7c2130d5de26de7989f6afda8f33581d74561e2ac912d9f539",
        "3f0800f0fa869a9252a612e2f95f4eb0ca8ec81c977304c2a6eb249364439a58",
    ),
    "recipes.tabular_model": (
        "8c2e7f29f9f82765d0a9ae6a5755985c51794ac0c833725655b318ce450d1494",
        "9fb38f93aafb62e84a691662f9c9137b6688665afecb4d5eb76b4aaf82a2700f",
    ),
}


def settings_and_code(config: FederatedOptions) -> list[Any]:
    """Return the settings that change releases, and the digest of each file of code."""
    settings = config.model_dump(mode="json", exclude=IRRELEVANT)
    settings["privacy"].pop("target_epsilon")
    here = (f"{__package__}.{name}" for name in CODE)
    return [settings, *map(_digest_in_names, (*config.code(), *here))]


def digest_of(path: str) -> str:
    """Return a digest of the module that "package.module:name" is of: its text, if it has one."""
    module = import_module(path.partition(":")[0])
    text = Path(module.__file__).read_bytes() if module.__file__ else b""
    return blake3(text).hexdigest()


def _digest_in_names(path: str) -> str:
    digest = digest_of(path)
    return dict(FILES.values()).get(digest, digest)
