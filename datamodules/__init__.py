"""LightningDataModules, one task a file. They never import app and are never imported by it."""

from datamodules.cifar import CIFAR10 as CIFAR10
from datamodules.cifar import CIFAR100 as CIFAR100
from datamodules.correction import Correction as Correction
from datamodules.digits import Digits as Digits
from datamodules.folder import ImageFolder as ImageFolder
from datamodules.gyroscope import Gyroscope as Gyroscope
from datamodules.mnist import MNIST as MNIST
from datamodules.mnist import FashionMNIST as FashionMNIST
from datamodules.near_pi import NearPi as NearPi
from datamodules.negation import Negation as Negation
from datamodules.products import LinearMap as LinearMap
from datamodules.products import Mean as Mean
from datamodules.products import PairProduct as PairProduct
from datamodules.products import Parity as Parity
from datamodules.products import Ratio as Ratio
from datamodules.products import RootRatio as RootRatio
from datamodules.products import SignedProduct as SignedProduct
from datamodules.products import Sine as Sine
from datamodules.products import TripleProduct as TripleProduct
from datamodules.reflection import Reflection as Reflection
from datamodules.stability import Stability as Stability
