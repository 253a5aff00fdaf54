import json
import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.records import load_study
from lerobot_policy_quantile.studies.two_demo.report.names import decoder_name
from lerobot_policy_quantile.studies.two_demo.report.pictures import VIDEO_BYTES, films
from lerobot_policy_quantile.studies.two_demo.report.study_page import FIGURES, HTML, MARKDOWN, flattened, make_report


@pytest.fixture(scope="module")
def report(study_folder):
    return make_report(load_study(study_folder), notes=["A note about the run."], version="1.2.3")


class Page(HTMLParser):
    """Cells of tables, identifiers, links inside the page, and elements that lack a description."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.ids, self.links, self.silent, self._cell = [], [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        facts = dict(attributes)
        self.ids += [facts["id"]] if "id" in facts else []
        self.links += [facts["href"]] if facts.get("href", "").startswith("#") else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self._cell = tag in ("td", "th", "span", "b", "code") and bool(self.rows)
        if tag == "img" and not facts.get("alt"):
            self.silent.append(facts)
        if tag == "video" and not facts.get("aria-label"):
            self.silent.append(facts)
        if tag == "svg" and facts.get("role") == "img" and not facts.get("aria-label"):
            self.silent.append(facts)

    def handle_data(self, data):
        if self._cell and self.rows[-1]:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag):
        self._cell = self._cell and tag not in ("td", "th", "tr")


def test_the_table_has_the_journals_counts(report, study_folder):
    page = Page(report.html)
    for name in ("embedded", "embedded+obstacle"):
        column = 6 if name.endswith("obstacle") else 1
        groups = {}
        for row in read_rows(study_folder / name / records.JOURNAL):
            head = row.key.policy.rpartition("-")[0]
            groups.setdefault(decoder_name(head, row.key.decoder), []).append(row.status)
        for decoder, statuses in groups.items():
            line = next(r for r in page.rows if r and r[0] == decoder and len(r) == 11)
            assert line[column] == f"{statuses.count('success')}/{len(statuses)}"


def test_every_section_and_figure_is_there_and_every_link_inside_leads_somewhere(report):
    page = Page(report.html)
    sections = "success paper demonstrations paths first-actions heads intervals spread films training cost checks run"
    assert set(sections.split()) <= set(page.ids)
    arms = [f"{kind}-embedded" for kind in ("demonstrations", "paths", "first-actions", "heads", "spread")]
    expected = {*arms, *(f"{name}+obstacle" for name in arms), "intervals-embedded+obstacle"}
    assert expected | {"success-embedded", "training-embedded", "cost-embedded"} <= set(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert "Missing" not in report.html.replace("Missing for embedded, without obstacle: fewer than two intervals", "")


def test_pictures_videos_and_panels_are_described_in_words(report):
    assert Page(report.html).silent == []


def test_the_page_needs_nothing_from_elsewhere(report):
    assert not re.search(r"https?://", report.html)
    assert "<script" not in report.html
    assert not re.search(r'(?:src|href|poster)="(?!data:|#)', report.html)
    assert "default-src 'none'" in report.html


def test_checks_settings_versions_and_notes_are_written_down(report, study_folder):
    for check in json.loads((study_folder / "embedded" / records.CHECKS).read_text()):
        assert check["figure"] in report.html
        assert check["figure"] in report.markdown
    for words in (
        "learning_rate",
        "0.0005",
        "mujoco",
        "3.3.2",
        "A note about the run.",
        "1.2.3",
        "sha256 0123456789ab",
    ):
        assert words in report.html
        assert words in report.markdown


def test_a_failed_check_stands_out(study_folder, tmp_path):
    folder = shutil.copytree(study_folder, tmp_path / "study")
    path = folder / "embedded" / records.CHECKS
    checks = json.loads(path.read_text())
    checks[0]["passed"] = False
    path.write_text(json.dumps(checks))
    report = make_report(load_study(folder))
    assert report.html.count("FAILED") == 1
    assert "6/7" in report.html
    assert "**FAILED**" in report.markdown


def test_the_same_study_gives_the_same_bytes(report, study_folder):
    again = make_report(load_study(study_folder), notes=["A note about the run."], version="1.2.3")
    assert (again.html, again.markdown, again.files) == (report.html, report.markdown, report.files)


def test_markdown_links_to_files_that_are_written_and_figures_are_well_formed(report, tmp_path):
    page = report.write(tmp_path / "out")
    assert page.name == HTML
    links = re.findall(r"\]\((report_figures/[^)]+)\)", (tmp_path / "out" / MARKDOWN).read_text())
    assert len(links) > 20
    assert all((tmp_path / "out" / link).stat().st_size > 100 for link in links)
    for file in (tmp_path / "out" / FIGURES).glob("*.svg"):
        ET.parse(file)
        assert "var(" not in file.read_text()


def test_a_report_over_an_earlier_one_leaves_no_old_figure_behind(report, tmp_path):
    report.write(tmp_path)
    (tmp_path / FIGURES / "old.svg").write_text("old")
    report.write(tmp_path)
    assert not (tmp_path / FIGURES / "old.svg").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([HTML, MARKDOWN, FIGURES])


STAGES = {
    "demonstrated": ("seed0", records.JOURNAL, records.SIDE),
    "trained": (records.JOURNAL, records.SIDE, "seed0/first_draws.npz", "seed0/cost.json"),
    "drawn": (records.JOURNAL, records.SIDE),
    "without side files": (records.SIDE,),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_study_that_has_come_this_far_has_a_report_that_says_what_is_missing(stage, study_folder, tmp_path):
    folder = shutil.copytree(study_folder, tmp_path / "study")
    for arm in ("embedded", "embedded+obstacle"):
        for name in STAGES[stage]:
            path = folder / arm / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = make_report(load_study(folder))
    assert 'id="missing"' in report.html
    assert "Missing for embedded, with obstacle" in report.html or "no side file" in report.html
    report.write(folder)


def test_a_study_may_have_run_in_one_arm_only(study_folder, tmp_path):
    folder = shutil.copytree(study_folder, tmp_path / "study")
    (folder / "embedded+obstacle" / records.JOURNAL).unlink()
    report = make_report(load_study(folder))
    assert "Missing for embedded, with obstacle: no episode has run yet." in report.html
    assert "none yet" in report.html


def test_a_study_of_which_nothing_has_begun_has_a_report(tmp_path):
    (tmp_path / records.STUDY).write_text(json.dumps({"arms": ["embedded"], "seeds": 1, "decoders": []}))
    report = make_report(load_study(tmp_path))
    assert "embedded: not begun." in report.html
    assert "Missing: no demonstration has been recorded yet." in report.html


def test_words_from_outside_cannot_become_markup(study_folder, tmp_path):
    folder = shutil.copytree(study_folder, tmp_path / "study")
    path = folder / "embedded" / records.ARM
    facts = json.loads(path.read_text()) | {"instruction": "<script>alert(1)</script>"}
    path.write_text(json.dumps(facts))
    report = make_report(load_study(folder))
    assert "<script>" not in report.html
    assert "&lt;script&gt;" in report.html


def test_videos_stay_within_their_room(study_folder, monkeypatch):
    arms = load_study(study_folder).arms
    shown = films(arms)
    sizes = [len(film.video.content) for film in shown]
    assert all(film.video.content[4:8] == b"ftyp" for film in shown)
    assert sum(sizes) < VIDEO_BYTES
    monkeypatch.setattr("lerobot_policy_quantile.studies.two_demo.report.pictures.VIDEO_BYTES", sizes[0] + 10)
    assert [film.video is not None for film in films(arms)][:2] == [True, False]
    assert all(film.frames for film in films(arms))


def test_films_show_both_sides_the_median_and_flow(study_folder):
    titles = [film.title for film in films(load_study(study_folder).arms)]
    assert "median, embedded, with obstacle" in titles
    assert "Flow matching, embedded, with obstacle" in titles
    assert len(titles) >= 6


def test_nested_settings_become_lines():
    lines = flattened({"a": {"b": 1, "c": [1, 2]}, "d": [["x", "y"]], "e": None})
    assert lines == [("a.b", "1"), ("a.c", "1; 2"), ("d", "x y"), ("e", "none")]
