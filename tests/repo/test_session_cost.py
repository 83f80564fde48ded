"""What is noted of a session's cost between two snapshots."""

import pytest

from relay.session.usage import Spent, Usage
from relay.store.attempts import drop_spent, find_spent, note_spent


def test_a_note_that_is_cut_off_counts_as_the_one_before(box):
    """Whatever a full disk or a power cut leaves of the last line."""
    repo = box.open()
    spent = Spent(usage=Usage(input_tokens=5, output_tokens=7), cost_usd=0.25)
    note_spent(repo, "0badcafe", spent, synced=True)
    file = repo.common_dir / "relay/spent/0badcafe"
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole + whole[:end])
        assert find_spent(repo, "0badcafe") == spent
        note_spent(repo, "0badcafe", Spent(cost_usd=None), synced=False)
        assert find_spent(repo, "0badcafe") == Spent(cost_usd=None)


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 65])
def test_an_id_that_is_none_of_relays_leads_nowhere(box, name):
    """It stands in a commit that anybody may have made."""
    repo = box.open()

    with pytest.raises(OSError, match="not a session"):
        note_spent(repo, name, Spent(), synced=True)
    assert find_spent(repo, name) is None
    drop_spent(repo, name)


def test_a_session_that_is_recorded_is_not_noted_again(box):
    repo = box.open()
    note_spent(repo, "0badcafe", Spent(), synced=True)
    drop_spent(repo, "0badcafe")

    with pytest.raises(FileNotFoundError):
        note_spent(repo, "0badcafe", Spent(), synced=False)
    assert find_spent(repo, "0badcafe") is None
