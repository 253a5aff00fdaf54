"""Checks of a run's folder: what of its journal and its side files is whole, and what is not."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from lerobot_policy_quantile.evaluation.contexts import policy_scope, scene_scope
from lerobot_policy_quantile.evaluation.journal import JournalError, inspect_journal
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.seals import Inspection
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL
from lerobot_policy_quantile.util.digests import plain_digest
from lerobot_policy_quantile.util.findings import Finding

SIDE = "side"
SHOWN = 20
"""Rows or files that are named; the others are counted."""

_COPY = "restore the folder from a copy, or run the command into another folder"
_COPY_FILES = "copy them back if you need them; the results stand without them"


def examine_run(folder: Path) -> list[Finding]:
    """Journal, checksums, contexts and side files of the folder that `qhead eval --out` wrote."""
    path = folder / JOURNAL if folder.is_dir() else folder
    try:
        found = inspect_journal(path)
    except JournalError as error:
        return [Finding("journal", "fail", str(error), _COPY)]
    findings = [_journal(found), *_checksums(found)]
    keys = _keys(found)
    if len(keys) < len(found.rows["results"]):
        findings.append(Finding("keys", "fail", "rows without checksums have keys that cannot be read", _COPY))
    return [*findings, _contexts(found), *_side_files(found, keys, path.parent / SIDE)]


def _journal(found: Inspection) -> Finding:
    if found.faults:
        return Finding("journal", "fail", _listed(list(dict.fromkeys(found.faults))), _COPY)
    counts = f"{len(found.rows['results'])} results, {len(found.rows['errors'])} attempts that ended in an error"
    return Finding("journal", "ok", counts)


def _checksums(found: Inspection) -> Iterator[Finding]:
    for names, what in ((found.altered, "altered"), (found.lost, "lost")):
        if names:
            yield Finding(f"{what} rows", "fail", _listed(names), _COPY)
    if found.unsealed.get("results"):
        yield Finding("whole rows", "warn", found.whole(), "rows from before there were checksums cannot be checked")
    else:
        yield Finding("whole rows", "ok", found.whole())


def _keys(found: Inspection) -> dict[str, EpisodeKey]:
    """Text -> key of the results; those that cannot be read are left out."""
    keys = {}
    for text, *_ in found.rows["results"]:
        try:
            keys[text] = EpisodeKey.parse(text)
        except (ValueError, TypeError):
            continue
    return keys


def _contexts(found: Inspection) -> Finding:
    """Whether every row was made with what the journal says of its scene and its policy."""
    try:
        contexts = {scope: json.loads(text) for scope, text in found.rows["contexts"]}
        strangers = []
        for text, *values in found.rows["results"]:
            key, versions = EpisodeKey.parse(text), json.loads(values[8])
            scopes = (scene_scope(key.scene), policy_scope(key.policy))
            expected = {name: value for scope in scopes for name, value in contexts.get(scope, {}).items()}
            if not versions.items() <= expected.items():
                strangers.append(text)
    except (ValueError, TypeError, AttributeError) as error:
        return Finding("contexts", "fail", f"cannot be read: {error}", _COPY)
    if strangers:
        return Finding("contexts", "fail", f"rows made with something else: {_listed(strangers)}", _COPY)
    return Finding("contexts", "ok", "; ".join(sorted(contexts)) or "none")


def _side_files(found: Inspection, keys: dict[str, EpisodeKey], folder: Path) -> Iterator[Finding]:
    said = {text: json.loads(files) for text, files in found.rows["side_files"]}
    there = {path.name for path in folder.glob("*")}
    missing, altered, whole = [], [], 0
    for text, files in said.items():
        for suffix, digest in files.items():
            name = f"{EpisodeKey.parse(text).digest}{suffix}"
            if name not in there:
                missing.append(f"{name} of {text}")
            elif plain_digest((folder / name).read_bytes()) != digest:
                altered.append(f"{name} of {text}")
            else:
                whole += 1
    for names, what in ((missing, "missing"), (altered, "altered")):
        if names:
            yield Finding(f"{what} side files", "fail", _listed(names), _COPY_FILES)
    yield Finding("whole side files", "ok", f"{whole} files of {len(said)} episodes match their digests")
    rowless = there - {f"{key.digest}{suffix}" for key in keys.values() for suffix in (".npz", ".png", ".mp4")}
    if rowless:
        yield Finding(
            "side files without a row",
            "warn",
            _listed(sorted(rowless)),
            "their episodes were under way when a run ended (the same command runs them), or their rows are lost",
        )


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names[:SHOWN]) + (f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
