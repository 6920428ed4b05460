import json

import pytest

import dragoman
from export.bundle import (
    Architecture,
    DecodingDefaults,
    Limits,
    Manifest,
    Score,
    SpecialTokens,
    describe_file,
    write_manifest,
)


@pytest.fixture
def bundle(tmp_path):
    directory = tmp_path / "bundle"
    directory.mkdir()
    names = ("encoder.onnx", "decoder.onnx", "weights.bin", "tokenizer.spm")
    for name in names:
        (directory / name).write_bytes(name.encode())
    manifest = Manifest(
        name="toy",
        version="3",
        source_language="en",
        target_language="pt-BR",
        architecture=Architecture(
            num_encoder_layers=6,
            num_decoder_layers=2,
            num_heads=8,
            head_size=32,
            d_model=256,
            vocab_size=32000,
        ),
        precision="int8",
        limits=Limits(max_source_tokens=256, max_target_tokens=512),
        decoding=DecodingDefaults(beam_size=4, length_penalty=0.6),
        special_tokens=SpecialTokens(eos_id=0, pad_id=0, unk_id=1, bos_id=None),
        tokenizer_files={"source": "tokenizer.spm", "target": "tokenizer.spm"},
        license="MPL-2.0",
        scores=(Score(test_set="devtest", metric="BLEU", value=43.21, signature="nrefs:1"),),
        files={name: describe_file(directory / name) for name in names},
    )
    write_manifest(directory, manifest)
    return directory


def test_a_bundle_is_described_in_a_table(bundle, capsys) -> None:
    assert dragoman.main(["info", str(bundle)]) == 0
    shown = capsys.readouterr().out
    for fact in ("toy 3", "en to pt-BR", "int8", "6 + 2 layers", "beam 4", "MPL-2.0", "43.21"):
        assert fact in shown


def test_a_long_value_is_shown_to_its_end(bundle, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = bundle / "manifest.json"
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    path.write_text(path.read_text().replace("nrefs:1", signature))

    assert dragoman.main(["info", str(bundle)]) == 0
    shown = capsys.readouterr().out
    cells = (line.split("│")[2] for line in shown.splitlines() if line.count("│") == 3)
    assert signature in "".join(cell.strip() for cell in cells)


def test_json_is_the_manifest(bundle, capsys) -> None:
    assert dragoman.main(["info", "--json", str(bundle)]) == 0
    (manifest,) = json.loads(capsys.readouterr().out)
    assert manifest == json.loads((bundle / "manifest.json").read_text())


def test_an_edited_bundle_is_refused_with_every_fault(bundle, capsys) -> None:
    (bundle / "weights.bin").write_bytes(b"other")
    (bundle / "tokenizer.spm").unlink()

    assert dragoman.main(["info", str(bundle)]) == 2
    err = capsys.readouterr().err
    assert "weights.bin" in err
    assert "tokenizer.spm" in err
    assert len(err.splitlines()) == 1
