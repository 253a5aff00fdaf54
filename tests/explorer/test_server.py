"""What the explorer's server gives out, and to whom."""

import http.client
import json

import pytest

from lerobot_policy_quantile.explorer.page import MODULES, flat_script, plotting_script, web_file
from tests.support.explored_run import key


def ask(server, target, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def test_every_part_of_the_page_comes_under_a_strict_policy(server):
    for target in ("/", "/explorer.css", "/plotly.js", *(f"/{name}" for name in MODULES), "/data/index.json"):
        status, content, headers = ask(server, target)
        assert (status, bool(content)) == (200, True)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "unsafe-eval" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "target",
    [
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/data/episode/0/../../journal.sqlite",
        "/data/episode/0/%2e%2e%2fjournal", "/data/episode/-1/x", "/data/episode/99/x", "/data/episode/0/" + "a" * 5000,
        "/web/main.js", "//etc/passwd", "/data/episode/%C2%B2/x", "/journal.sqlite", "/main.js/../server.py",
    ],
)  # fmt: skip
def test_no_address_becomes_a_file_name(server, target):
    assert ask(server, target)[0] == 404


def test_other_hosts_and_methods_are_refused(server):
    assert ask(server, "/", Host="evil.example")[0] == 403
    assert ask(server, "/data/index.json", "POST")[0] == 501


def test_summaries_are_of_the_episodes_that_were_asked_for(server):
    ask(server, "/data/index.json")
    place = f"0/{key(0).digest}"
    found = json.loads(ask(server, f"/data/summaries.json?episodes={place},0/nobody,../..")[1])
    assert found[place]["alarm"] == 20
    assert found["0/nobody"] is None
    assert found["../.."] is None


def test_the_flat_script_has_no_imports_and_nothing_ends_a_script_element():
    assert "import {" not in flat_script()
    assert "\nexport " not in flat_script()
    for text in (flat_script(), plotting_script()):
        assert "</script" not in text.lower()
        assert "<!--" not in flat_script()


def test_text_is_never_read_as_markup():
    for name in MODULES:
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in web_file(name), (name, word)
