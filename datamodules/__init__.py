"""LightningDataModules, one task a file. They never import app and are never imported by it."""

from datamodules.digits import Digits as Digits
from datamodules.mnist import MNIST as MNIST
from datamodules.mnist import FashionMNIST as FashionMNIST
