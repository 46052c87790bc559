"""The data sets: what they are, which files they need, and where those can be had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RemoteFile:
    """A file by its path inside a data home, and the addresses that have it."""

    path: str
    sha256: str
    size: int
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """A data set before it is loaded."""

    name: str
    shape: str
    source: str
    licence: str
    description: str
    remote_files: tuple[RemoteFile, ...] = ()  # none for sets that scikit-learn carries or that are generated
    classes: tuple[str, ...] = ()  # none for regression
    folder: Path | None = None  # the data home that has the files

    @property
    def task(self) -> str:
        """``"classification"`` or ``"regression"``."""
        return "classification" if self.classes else "regression"

    @property
    def files(self) -> tuple[str, ...]:
        """Paths inside a data home."""
        return tuple(file.path for file in self.remote_files)

    @property
    def ready(self) -> bool:
        """Whether ``load`` needs no download."""
        return self.folder is not None or not self.remote_files


def available() -> tuple[str, ...]:
    """The names that ``load`` knows.

    >>> available()
    ('digits', 'diabetes', 'mnist', 'fashion-mnist', 'boston', 'ale', 'synthetic')
    """
    return tuple(CATALOG)


def _image_files(folder: str, bases: tuple[str, ...], parts: dict[str, tuple[str, int]]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{folder}/{part}", sha256, size, tuple(base + part for base in bases))
        for part, (sha256, size) in parts.items()
    )


_MNIST_FILES = _image_files(
    "mnist",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    {
        "train-images-idx3-ubyte.gz": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        "train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        "t10k-images-idx3-ubyte.gz": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        "t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    },
)

_FASHION_FILES = _image_files(
    "fashion-mnist",
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    {
        "train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        "t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    },
)

_SKLEARN_RAW = "https://raw.githubusercontent.com/scikit-learn/scikit-learn"
_BOSTON_FILE = RemoteFile(
    "boston/boston_house_prices.csv",
    "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6",
    34742,
    (
        f"{_SKLEARN_RAW}/1.1.3/sklearn/datasets/data/boston_house_prices.csv",
        f"{_SKLEARN_RAW}/1.0.2/sklearn/datasets/data/boston_house_prices.csv",
    ),
)

_ALE_CSV = "mcs_ds_edited_iter_shuffled.csv"
_ALE_FILE = RemoteFile(
    f"ale/{_ALE_CSV}",
    "825f9def1b19e489d199fc6669d09a46368fa09a822a32dadfb8e7839d33b4e0",
    5297,
    (f"https://raw.githubusercontent.com/Vijayan0320/docs/8f83f22aa155715a848b23cd47e40e11c40df9a2/{_ALE_CSV}",),
)

CATALOG: dict[str, Description] = {
    item.name: item
    for item in (
        Description(
            "digits",
            "1797 images of 8×8 pixels, 10 classes",
            "UCI optical recognition of handwritten digits, test part, as carried by scikit-learn",
            "CC BY 4.0",
            "Pixels divided by 16 into [0, 1] and flattened: x (1797, 64).",
            classes=tuple("0123456789"),
        ),
        Description(
            "diabetes",
            "442 rows, 10 columns",
            "Efron, Hastie, Johnstone and Tibshirani (2004), as carried by scikit-learn",
            "none stated; scikit-learn's copy is BSD-3-Clause",
            "Progression of the disease after one year; columns centred and scaled by scikit-learn.",
        ),
        Description(
            "mnist",
            "60000 + 10000 images of 28×28 pixels, 10 classes",
            "LeCun, Cortes and Burges: The MNIST database of handwritten digits",
            "commonly given as CC BY-SA 3.0",
            "Handwritten digits with the official training and test parts.",
            _MNIST_FILES,
            tuple("0123456789"),
        ),
        Description(
            "fashion-mnist",
            "60000 + 10000 images of 28×28 pixels, 10 classes",
            "Zalando Research",
            "MIT",
            "Articles of clothing with the official training and test parts.",
            _FASHION_FILES,
            ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        Description(
            "boston",
            "506 rows, 13 columns",
            "Harrison and Rubinfeld (1978), StatLib, in the copy carried by scikit-learn up to 1.1",
            "none stated; scikit-learn's copy is BSD-3-Clause",
            "Median house value (MEDV, in 1000 dollars) of Boston census tracts in 1970. The column B encodes race; "
            "use the set to compare with published results, not to model houses.",
            (_BOSTON_FILE,),
        ),
        Description(
            "ale",
            "107 rows, 4 columns",
            "UCI Machine Learning Repository no. 844; Singh et al., IEEE Access 8 (2020)",
            "CC BY 4.0",
            "Average localization error of sensor nodes. The column sd_ale, measured with the target, is left out.",
            (_ALE_FILE,),
        ),
        Description(
            "synthetic",
            "10000 or 50000 + 10000 rows, 3 sites of width d",
            "generated (paper, Eq. synthetic)",
            "none",
            "A random polynomial with terms of order 1, 2 and 3 in three vectors x(1), x(2), x(3).",
        ),
    )
}
