"""LightningDataModules, one task a file. They never import app and are never imported by it."""

from datamodules.cifar import CIFAR10 as CIFAR10
from datamodules.cifar import CIFAR100 as CIFAR100
from datamodules.digits import Digits as Digits
from datamodules.folder import ImageFolder as ImageFolder
from datamodules.gyroscope import Gyroscope as Gyroscope
from datamodules.mnist import MNIST as MNIST
from datamodules.mnist import FashionMNIST as FashionMNIST
from datamodules.negation import Negation as Negation
from datamodules.stability import Stability as Stability
