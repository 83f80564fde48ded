"""A forge's program that does not end."""

import os

import pytest

from relay.git.forge import Forge, ForgeError


def test_at_the_limit_it_is_an_error(box, tmp_path):
    program = tmp_path / "gh"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    forge = Forge(repo=box.open(), name="gh", path=str(program), environ=os.environ, limit_s=0.2)
    with pytest.raises(ForgeError, match=r"gh did not end in 0\.2 s and was killed"):
        forge.put_comment("7", "text", mark="mark")
