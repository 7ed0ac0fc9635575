"""The package cache's configuration."""

from __future__ import annotations

from pathlib import Path

from inventory.loading import load_cluster
from lab.apt import Mirrors
from lab.cache import apt_lines, cache_url, render_config
from lab.plan import make_plan

PLAN = make_plan(load_cluster("inventory/lab.py"))


def test_nodes_ask_the_cache_only() -> None:
    """Every apt line of a node names this machine's end of the lab; a missing security mirror is left out."""
    both = apt_lines(cache_url(PLAN), "trixie", Mirrors("http://m.example/debian", "http://m.example/sec"))
    assert len(both) == 3
    assert all(line.split()[1].startswith("http://10.77.0.254:3142/") for line in both)
    assert len(apt_lines(cache_url(PLAN), "trixie", Mirrors("http://m.example/debian", None))) == 2


def test_the_cache_asks_the_mirror_by_its_name() -> None:
    """Each archive is passed on to its mirror, http or https, with that mirror's host and path."""
    text = render_config(PLAN, Mirrors("https://m.example:8443/pub/debian", "http://s.example/sec"), Path("/state"))
    assert "proxy_pass https://m.example:8443/pub/debian/;" in text
    assert "rewrite ^/debian/(.*)$ /pub/debian/$1 break;" in text
    assert text.count("proxy_set_header Host m.example:8443;") == 2
    assert text.count("proxy_set_header Host s.example;") == 2


def test_the_cache_listens_in_the_lab_only() -> None:
    """Nobody outside the lab can use the cache: it listens on the lab's address alone."""
    listens = [line.split() for line in render_config(PLAN, Mirrors("http://m/debian", None), Path("/s")).splitlines()]
    assert [words for words in listens if words[:1] == ["listen"]] == [["listen", "10.77.0.254:3142;"]]
