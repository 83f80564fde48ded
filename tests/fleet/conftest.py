"""The repositories of tests/repo, and jobs in linked work trees beside them."""

from tests.repo.conftest import box, new_box, template

__all__ = ["box", "new_box", "template"]
