"""The layout that docs/explanation/architecture.md describes: top level, file sizes, names, picture."""

import ast
from collections import Counter
from pathlib import Path

import lerobot_policy_quantile
from scripts import handover_picture
from scripts.architecture_picture import PICTURE, layers, picture

ROOT = Path(__file__).parent.parent
PACKAGE = Path(lerobot_policy_quantile.__file__).parent
LONGEST = 400


def python_files(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def test_the_top_level_holds_lerobots_files_the_contract_and_packages():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files == {
        "__init__.py",
        "configuration_quantile.py",
        "contract.py",
        "modeling_quantile.py",
        "processor_quantile.py",
        "py.typed",
    }
    packages = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert all((path / "__init__.py").is_file() for path in packages)


def test_every_top_level_module_has_its_layer():
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {name for layer in layers() for name in layer} == names - {"__init__"}


def test_no_file_is_longer_than_one_can_hold_in_the_head():
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines())
        for file in python_files("src", "tests", "scripts", "benchmarks", "examples")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_no_class_name_means_two_things():
    names = Counter(
        node.name
        for file in python_files("src")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_modules_share_a_name_that_says_what_they_do():
    """`contract.py` of a package and a benchmark's `plus.py` are told apart by their folder; these are not."""
    stems = Counter(file.stem for file in python_files("src"))
    assert [name for name in ("statistics", "normalisation", "schedule", "digests") if stems[name] > 1] == []


def test_the_picture_is_that_of_the_present_contracts():
    assert PICTURE.read_text() == picture(), "draw it anew with: python -m scripts.architecture_picture"


def test_the_picture_of_two_chunks_is_drawn_by_the_present_code():
    drawn = handover_picture.PICTURE.read_text()
    assert drawn == handover_picture.picture(), "draw it anew with: python -m scripts.handover_picture"
