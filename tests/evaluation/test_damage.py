"""Damaged journals: whatever happens to the file's bytes, rows are read as they were written or not at all."""

import random
import shutil
import sqlite3
from contextlib import suppress

import pytest

from lerobot_policy_quantile.evaluation.journal import Journal, JournalError, inspect_journal, read_errors, read_rows
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from tests.support.old_journal import write_old_journal

ROWS = 80
PAGE = 4096


def key(index: int) -> EpisodeKey:
    return EpisodeKey("embedded", 0, index, 0, "ours", "median")


def outcome(index: int) -> Outcome:
    """Values of a row's usual size; some rows are long enough for pages of their own."""
    chance = random.Random(index)
    return Outcome(
        key(index),
        "success" if index % 3 else "failure",
        steps=30 + index,
        wall_seconds=chance.random(),
        first_action=tuple(chance.random() for _ in range(7)),
        final_state=tuple(chance.random() for _ in range(400 if index % 20 == 0 else 8)),
        scene_context={"mujoco": "3.3.2", "camera_size": "256"},
        policy_context={"policy": "abc"},
        hashes={"actions": f"{chance.getrandbits(64):016x}"},
        side_files={".npz": f"{chance.getrandbits(64):016x}"},
    )


def write(path, indices) -> None:
    with Journal(path) as journal:
        for index in indices:
            if index % 10 == 0:
                journal.record(Outcome(key(index), "error", traceback=f"Traceback {index}"))
            journal.record(outcome(index))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "journal.sqlite"
    write(path, range(ROWS))
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copy(whole, tmp_path / "journal.sqlite")


def spoil(content: bytes, chance: random.Random) -> bytes:
    """One flipped bit, two pages that changed places, or a page in the place of another."""
    spoilt = bytearray(content)
    kind = chance.choice(("bit", "bit", "swap", "copy"))
    if kind == "bit":
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
        return bytes(spoilt)
    one, other = (slice(PAGE * n, PAGE * (n + 1)) for n in chance.sample(range(len(content) // PAGE), 2))
    spoilt[one] = content[other]
    if kind == "swap":
        spoilt[other] = content[one]
    return bytes(spoilt)


@pytest.mark.parametrize("damages", [100, pytest.param(600, marks=pytest.mark.slow)])
def test_no_damage_is_read_without_a_word(whole, tmp_path, damages):
    rows, errors, content = read_rows(whole), read_errors(whole), whole.read_bytes()
    assert len(content) // PAGE > 20
    chance, refused = random.Random(5), 0
    for number in range(damages):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(spoil(content, chance))
        with suppress(JournalError):
            refused += 1
            assert read_rows(path) == rows
            assert read_errors(path) == errors
            refused -= 1
        for file in tmp_path.glob(f"{number}.sqlite*"):
            file.unlink()
    assert refused > damages / 4


@pytest.mark.parametrize("kept", [50, 100, 3000, PAGE, PAGE + 1, 3 * PAGE, 17 * PAGE, -PAGE, -1])
@pytest.mark.parametrize("opened", [read_rows, read_errors, Journal])
def test_a_truncated_journal_is_one_sentence(copy, kept, opened):
    content = copy.read_bytes()
    copy.write_bytes(content[:kept])
    with pytest.raises(JournalError, match=r"damaged|not a database|empty|malformed"):
        opened(copy)
    assert len(copy.read_bytes()) == len(content[:kept]), "a damaged journal was written to"


def test_an_empty_file_is_no_journal(copy):
    """As a run leaves it that was killed before it began, or as damage does."""
    copy.write_bytes(b"")
    with pytest.raises(JournalError, match="is empty: no row was ever written, or all were lost"):
        read_rows(copy)
    Journal(copy).close()
    assert read_rows(copy) == []


def test_the_message_names_what_is_altered_and_counts_what_is_whole(copy):
    text = read_rows(copy)[7].hashes["actions"].encode()
    copy.write_bytes(copy.read_bytes().replace(text, b"0" * 16))
    with pytest.raises(JournalError, match=rf"altered: results .*,7,0.*; {ROWS - 1} results match their checksums"):
        read_rows(copy)
    with pytest.raises(JournalError, match="damaged"):
        Journal(copy)


def without_triggers(path) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    return db


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM results WHERE rowid = 5", "lost: results .*,4,0"),
        ("DELETE FROM results WHERE rowid = (SELECT max(rowid) FROM results)", "lost: results"),
        ("UPDATE results SET status = 'success' WHERE status = 'failure'", "altered: results .* and 22 more"),
        ("DELETE FROM seals WHERE number = 30", "checksums are missing"),
        ("DELETE FROM seals WHERE number = (SELECT max(number) FROM seals)", "altered: side_files"),
        ("UPDATE contexts SET context = replace(context, '256', '128')", "altered: contexts scene embedded"),
        ("DELETE FROM errors", "lost: errors"),
        ("INSERT INTO side_files VALUES ('x', 'y')", "altered: side_files x"),
        ("DROP TABLE errors", "table errors is gone"),
    ],
)
def test_rows_that_were_changed_added_or_taken_out_are_named(copy, change, said):
    db = without_triggers(copy)
    db.execute(change)
    db.commit()
    db.close()
    with pytest.raises(JournalError, match=said):
        read_rows(copy)


def test_rows_beside_a_page_that_cannot_be_read_are_still_found(copy):
    content = bytearray(copy.read_bytes())
    place = content.find(read_rows(copy)[41].hashes["actions"].encode()) // PAGE * PAGE
    content[place : place + PAGE] = bytes(PAGE)
    copy.write_bytes(content)
    found = inspect_journal(copy)
    assert not found.sound
    assert ROWS - 20 < len(found.rows["results"]) < ROWS
    assert len(found.rows["results"]) + len([name for name in found.lost if name.startswith("results")]) == ROWS


SCENE, POLICY = {"mujoco": "3.3.2", "camera_size": "256"}, {"policy": "abc"}


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old" / "journal.sqlite"
    path.parent.mkdir()
    write_old_journal(path, [key(index).text for index in range(3)], SCENE, POLICY)
    return path


def test_a_journal_from_before_the_checksums_is_read_and_it_is_said_once(old, caplog):
    assert [row.key.index for row in read_rows(old)] == [0, 1, 2]
    read_rows(old)
    assert [record.getMessage() for record in caplog.records] == [
        f"journal {old}: 3 results were written before rows had checksums and carry none"
    ]
    assert len(read_errors(old)) == 1


def test_a_journal_from_before_the_checksums_goes_on_with_them(old):
    write(old, [3, 4])
    assert [row.key.index for row in read_rows(old)] == [0, 1, 2, 3, 4]
    found = inspect_journal(old)
    assert found.unsealed["results"] == 3
    assert found.whole() == "2 results match their checksums and 3 carry none"
    db = without_triggers(old)
    db.execute("DELETE FROM results WHERE rowid = 2")
    db.commit()
    with pytest.raises(JournalError, match="1 of 3 earlier results are gone; 2 results match"):
        read_rows(old)
    db.execute("DELETE FROM results WHERE rowid = 4")
    db.commit()
    db.close()
    with pytest.raises(JournalError, match=r"lost: results .*,3,0"):
        read_rows(old)


def test_a_row_without_checksum_that_cannot_be_read_is_one_sentence(old):
    db = without_triggers(old)
    db.execute("UPDATE results SET versions = 'x' WHERE rowid = 2")
    db.commit()
    db.close()
    with pytest.raises(JournalError, match="a row without a checksum cannot be read"):
        read_rows(old)
