import dragoman


def test_a_bundle_that_is_not_there_fails_with_its_fault(tmp_path, capsys) -> None:
    assert dragoman.main(["verify", str(tmp_path / "nothing")]) == 1
    assert f"{tmp_path}/nothing: `manifest.json` cannot be read" in capsys.readouterr().out


def test_every_fault_has_a_line_and_the_exit_code_is_1(monkeypatch, capsys) -> None:
    monkeypatch.setattr("export.parity.verify", lambda bundle, checkpoint: ["one", f"{checkpoint}"])

    assert dragoman.main(["verify", "b", "--checkpoint", "c"]) == 1
    assert capsys.readouterr().out == "b: one\nb: c\n"


def test_a_good_bundle_is_said_to_be_good(monkeypatch, capsys) -> None:
    monkeypatch.setattr("export.parity.verify", lambda bundle, checkpoint: [])

    assert dragoman.main(["verify", "b"]) == 0
    assert capsys.readouterr().out == "b: no fault found (by itself)\n"
