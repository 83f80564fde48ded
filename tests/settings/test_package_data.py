"""Finding what is shipped."""

from pathlib import Path

import pytest

from relay.base.errors import RelayError
from relay.prompts.package_data import get_shipped


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "relay" / "_shipped").mkdir(parents=True)
    return tmp_path / "relay"


def test_the_package_s_own_copy_comes_first(package: Path) -> None:
    for place in (package / "_shipped", package.parent):
        (place / "templates").mkdir()
    (package.parent / "pyproject.toml").touch()
    assert get_shipped("templates", package=package) == package / "_shipped" / "templates"


def test_a_checkout_serves_its_own_folders(package: Path) -> None:
    (package.parent / "examples").mkdir()
    (package.parent / "examples" / "PLAN.md").touch()
    (package.parent / "pyproject.toml").touch()
    assert get_shipped("examples/PLAN.md", package=package) == package.parent / "examples" / "PLAN.md"


def test_a_folder_of_another_distribution_is_not_taken(package: Path) -> None:
    (package.parent / "templates").mkdir()
    with pytest.raises(RelayError, match="lacks templates"):
        get_shipped("templates", package=package)
