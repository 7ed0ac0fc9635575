"""The Debian mirror is read from the machine's apt configuration, in both of its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.apt import Mirrors, Source, choose_mirrors, machine_mirrors, parse_deb822, parse_one_line, read_sources
from lab.errors import LabError

DEB822 = """\
# Debian
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: trixie
Components: main
"""
ONE_LINE = """\
# deb http://comment.example/debian trixie main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://one.example/debian trixie main  # x
deb-src http://source.example/debian trixie main
deb https://tool.example/linux/debian trixie stable
deb http://security.example/debian-security trixie-security main
"""


def test_paragraphs_are_read() -> None:
    """deb822: continued fields are joined; disabled and source-only paragraphs are left out."""
    assert list(parse_deb822(DEB822)) == [
        Source(
            "http://mirror.example/debian/",
            ("bookworm", "bookworm-updates"),
            ("main", "contrib"),
            "/usr/share/keyrings/debian-archive-keyring.gpg",
        ),
        Source("http://mirror.example/debian-security", ("bookworm-security",), ("main",)),
    ]


def test_lines_are_read() -> None:
    """One-line form: options, comments and source lines are told apart from archives."""
    assert [source.uri for source in parse_one_line(ONE_LINE)] == [
        "https://one.example/debian",
        "https://tool.example/linux/debian",
        "http://security.example/debian-security",
    ]
    assert next(parse_one_line(ONE_LINE)).signed_by.endswith("debian-archive-keyring.gpg")


def test_main_and_security_are_chosen() -> None:
    """Among all archives, Debian's main one and its security one are found, without a slash at the end."""
    assert choose_mirrors(parse_deb822(DEB822)) == Mirrors(
        "http://mirror.example/debian", "http://mirror.example/debian-security"
    )


def test_other_people_s_archives_for_debian_are_not_debian() -> None:
    """An archive that merely ends in /debian, without the component main, is never taken for Debian."""
    mirrors = choose_mirrors(parse_one_line(ONE_LINE))
    assert mirrors == Mirrors("https://one.example/debian", "http://security.example/debian-security")


def test_debian_s_own_key_decides_between_two() -> None:
    """Of two archives called debian, the one signed by Debian's own key is taken, whatever their order."""
    other = Source("http://other.example/debian", ("trixie",), ("main",), "/etc/apt/keyrings/other.gpg")
    real = Source("http://real.example/x", ("trixie",), ("main",), "/usr/share/keyrings/debian-archive-keyring.pgp")
    assert choose_mirrors([other, real]).main == choose_mirrors([real, other]).main == "http://real.example/x"


def test_a_machine_without_a_security_mirror_has_none() -> None:
    """Without a security archive the nodes get none; nothing is guessed."""
    assert choose_mirrors([Source("http://m.example/debian", ("trixie",), ("main",))]).security is None


def test_ubuntu_is_told_what_to_set() -> None:
    """On a machine that knows no Debian mirror the error is one line that says which variable to set."""
    ubuntu = Source("http://ubuntu.example/ubuntu", ("noble",), ("main", "universe"))
    with pytest.raises(LabError, match="set KLASTER_DEBIAN_MIRROR") as caught:
        choose_mirrors([ubuntu])
    assert "\n" not in str(caught.value)


def test_the_environment_goes_first() -> None:
    """A mirror named by hand is used as it is."""
    assert machine_mirrors({"KLASTER_DEBIAN_MIRROR": "http://by.hand/debian/"}) == Mirrors(
        "http://by.hand/debian", None
    )


def test_ubuntu_gets_the_image_builder_s_default(tmp_path: Path) -> None:
    """Where apt knows no Debian mirror, the one that mmdebstrap itself would use is read from it."""
    builder = tmp_path / "mmdebstrap"
    builder.write_text("my $mirror    = 'http://default.example/debian/';\nmy $secmirror = 'http://s.example/sec';\n")
    assert machine_mirrors({}, tmp_path, builder) == Mirrors("http://default.example/debian", "http://s.example/sec")
    builder.write_text("another program\n")
    with pytest.raises(LabError, match="set KLASTER_DEBIAN_MIRROR"):
        machine_mirrors({}, tmp_path, builder)


def test_all_files_are_read_and_mirror_lists_followed(tmp_path: Path) -> None:
    """sources.list, *.list and *.sources count, other files don't; a mirror list stands for its first mirror."""
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "mirrors").write_text("http://first.example/debian\nhttp://second.example/debian\n")
    (tmp_path / "sources.list").write_text("deb http://a.example/debian trixie main\n")
    (parts / "b.list").write_text("deb http://b.example/debian trixie main\n")
    (parts / "c.sources").write_text(
        f"Types: deb\nURIs: mirror+file:{tmp_path}/mirrors\nSuites: trixie\nComponents: main\n"
    )
    (parts / "d.list.save").write_text("deb http://d.example/debian trixie main\n")
    assert [source.uri for source in read_sources(tmp_path)] == [
        "http://a.example/debian",
        "http://b.example/debian",
        "http://first.example/debian",
    ]
