"""A LightningModule and its DataModule as they are, and the two lines that train them here."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from trainops.kinds.loop.lightning import lightning_loop


class Digits(LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        digits = load_digits()
        images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
        self.training = TensorDataset(images[:1437], labels[:1437])
        self.held_out = TensorDataset(images[1437:], labels[1437:])

    def train_dataloader(self):
        return DataLoader(self.training, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=256)


class Classifier(LightningModule):
    def __init__(self, learning_rate):
        super().__init__()
        self.learning_rate = learning_rate
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        return functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        scores = self.net(images)
        self.log("val_loss", functional.cross_entropy(scores, labels))
        self.log("val_accuracy", (scores.argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)


def make(run, parameters):
    return Classifier(parameters.learning_rate), Digits(parameters.batch_size)


train = lightning_loop(make)
