"""Digests of source files before moves and renames, by the digest of the file as it is now.

The name of a release includes a digest of the source code. A run from before such a change
continues with the same noise only if its release names stay the same. In these files only import
paths and names changed, and trainops.kinds.federated.implementation selects the fast modules. A
file that is edited later is not found here, and its releases get new names.
"""

BEFORE = {
    # rng
    "2ff9783f0d32b4895e44deb587348ca080975f8c35086dd498985745b1df4ca3":
    "4635a31e6e96c1248c20ac78d325d3ba610e147d4c0d99e248c8e08adc7f7a8a",
    # private
    "0b7a509119d1481fa4855a9ff1442ffacee678e9737e01f9900c0ce4d95e2de1":
    "b636d13356af2e8c71cea06283be9c9792f4e3cfa21be83b0e09f86bab45de74",
    # fast.ghost_clipping
    "bdcbe5e68a2f996c86a3bda0194a95857bdac23bc1fac008c9c49a294dc14ef4":
    "99a7b4d6daac829044e05b777ca7d2ddd280badf166511569a1111cfa0bddb4f",
    # fast.losses
    "ed30601da3e268b62f53861a4a82070fc9c1ae89ae13d179f38eddef6e0ee2cc":
    "33d7c8293acefd6f99f7b26262feb858e5979d053727d509c0e98d85be4c09da",
    # fast.optimizer
    "781420e9fbfb84513b8be0535e44d15c844e9a668329d7351c9447211e895c3a":
    "37db34b9f50b14a1ecd7d8fbf0b5c29cfb2d7a1d9f1bc2a28f02df2a97376b42",
    # local_training
    "16c64411a7b6951f6994ee941c51398264d7f0133626c0a0cc337bc6b25fdc7f":
    "318ad1a16b8c3d3078af7d042603438e3d90143bf3a194ecd37a94360ad834b3",
    # server
    "6a72c56f81d06bf2cb5974b2ffaa6e8518e9d4900544e9db1a2071de952f5f5d":
    "f88e96cd68ba53318031d36347b06abdfba3809c1b05e610b9ee220e0699256f",
    # schedule
    "eb49cb7631e337e645b0d44ac8706df30ca33fbc4b8657fd2973b38155759775":
    "a8eeac502f6c80bc713184412ad8cba4cfd503c898ce04710f1939f46bebb7ff",
    # strategies.fedprox
    "dd470ae7a843824afd07be7b7766016cb5f0df539b7e70d53a709682cee334a8":
    "5840428b3a78ec7cc1dce2391c36ad2cd23fad5e94c210a68efc02c553831b83",
    # recipes.digits_model
    "27e23f39d331dcf17220d62e0785d7eb61d5172c30bd42a07934089cce531593":
    "7137510329009d0a3f83c257c3d5c5d1e1c128f74552a9316885bd4334851379",
    # recipes.images_model
    "eba556e4d83c8efdd85f82fbe0730113b449ca74af753137f0cb649cec186b83":
    "fc5e107dc927046b23c76c8a9d7302fb1ef5d610f3159e070867f7718eb20ab1",
    # recipes.segmentation_model
    "e2381e1b0e08af7c2130d5de26de7989f6afda8f33581d74561e2ac912d9f539":
    "3f0800f0fa869a9252a612e2f95f4eb0ca8ec81c977304c2a6eb249364439a58",
    # recipes.tabular_model
    "8c2e7f29f9f82765d0a9ae6a5755985c51794ac0c833725655b318ce450d1494":
    "9fb38f93aafb62e84a691662f9c9137b6688665afecb4d5eb76b4aaf82a2700f",
}  # fmt: skip
