"""LightningDataModules, one task a file. They never import app and are never imported by it."""

from datamodules.cifar import CIFAR10 as CIFAR10
from datamodules.cifar import CIFAR100 as CIFAR100
from datamodules.digits import Digits as Digits
from datamodules.folder import ImageFolder as ImageFolder
from datamodules.mnist import MNIST as MNIST
from datamodules.mnist import FashionMNIST as FashionMNIST
