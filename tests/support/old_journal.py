"""A journal as version 1 wrote it: no seals, no list of side files."""

import json
import sqlite3
from pathlib import Path

SCHEMA = """
CREATE TABLE results (
    key TEXT PRIMARY KEY, status TEXT NOT NULL, attempts INTEGER NOT NULL, steps INTEGER NOT NULL,
    simulated_seconds REAL NOT NULL, wall_seconds REAL NOT NULL, first_action TEXT, contacts INTEGER NOT NULL,
    final_state TEXT, versions TEXT NOT NULL, hashes TEXT NOT NULL, traceback TEXT, side_error TEXT
) STRICT;
CREATE TABLE errors (
    key TEXT NOT NULL, attempt INTEGER NOT NULL, traceback TEXT NOT NULL, PRIMARY KEY (key, attempt)
) STRICT;
CREATE TABLE contexts (scope TEXT PRIMARY KEY, context TEXT NOT NULL) STRICT;
CREATE TRIGGER results_keep_delete BEFORE DELETE ON results
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
PRAGMA user_version = 1;
"""


def write_old_journal(path: Path, keys: list[str], scene: dict[str, str], policy: dict[str, str]) -> None:
    """Successful episodes of one scene and one policy, and one failed attempt at the first."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(SCHEMA)
    for key in keys:
        values = (key, "success", 1, 30, 1.5, 0.5, "[0.1]", 0, "[1.0]", json.dumps(scene | policy), "{}", None, None)
        db.execute(f"INSERT INTO results VALUES ({', '.join('?' * 13)})", values)
    db.execute("INSERT INTO errors VALUES (?, 1, 'Traceback')", (keys[0],))
    name, policy_name = json.loads(keys[0])[0], json.loads(keys[0])[4]
    db.execute("INSERT INTO contexts VALUES (?, ?)", (f"scene {name}", json.dumps(scene)))
    db.execute("INSERT INTO contexts VALUES (?, ?)", (f"policy {policy_name}", json.dumps(policy)))
    db.commit()
    db.close()
