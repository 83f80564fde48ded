"""`relay doctor --notify` calls whom a run calls, over real HTTP."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.news.listener import listen


@pytest.mark.nightly
def test_each_channel_is_tried_by_hand_anywhere_and_no_secret_is_shown(relay, tmp_path):
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    assert relay("doctor", "--notify", cwd=outside).err.startswith("Error: runs notify nobody")
    with listen() as endpoint:
        config.write_text(
            f"""notify = [{{ url = "{endpoint.address}/s3cret-0f-mine" }}, {{ command = ["false"], on = ["red"] }}]\n"""
        )
        config.write_text(config.read_text().replace("false", "true"))
        well = relay("doctor", "--notify", cwd=outside)
        endpoint.answers = [401]
        refused = relay("doctor", "--notify", cwd=outside)
        told, *_ = (json.loads(body) for *_, body in endpoint.seen)
    assert (well.code, well.out.splitlines()) == (
        ExitCode.DONE,
        [
            "json on done, blocked, stopped, limit, cost, question",
            "true on red",
            "json: it was taken",
            "true: true ended with 0",
        ],
    )
    assert (refused.code, refused.out.splitlines()[2]) == (ExitCode.USER, "json: answered with 401")
    assert (told["title"], told["message"]) == ("relay: a test", "this is what a run would tell you")
    assert "s3cret" not in f"{well} {refused}"
