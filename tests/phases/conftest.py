"""The repositories of tests/repo, with work trees of relay's beside them."""

from tests.repo.conftest import box, new_box, template

__all__ = ["box", "new_box", "template"]
