import struct

import numpy as np
import pytest

from model.recipes.marian_format import MarianFormatError, load_marian_tensors

FLOAT32, INT8 = 0x404, 0x4101


def write_model(path, tensors, padding=5):
    """Write (name, type, shape, bytes) entries as Marian does."""
    blob = struct.pack("<2Q", 1, len(tensors))
    for name, type_, shape, raw in tensors:
        blob += struct.pack("<4Q", len(name) + 1, type_, len(shape), len(raw))
    blob += b"".join(name.encode() + b"\0" for name, *_ in tensors)
    blob += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in tensors)
    blob += struct.pack("<Q", padding) + bytes(padding)
    path.write_bytes(blob + b"".join(raw for *_, raw in tensors))
    return path


def int8_tensor(values, multiplier):
    return np.array(values, dtype=np.int8).tobytes() + struct.pack("<f", multiplier) + bytes(3)


def test_float_tensor_is_read_as_it_stands(tmp_path):
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    path = write_model(tmp_path / "m.bin", [("b", FLOAT32, (2, 3), values.tobytes())])
    np.testing.assert_array_equal(load_marian_tensors(path)["b"], values)


def test_int8_matrix_is_turned_round_and_divided_by_its_multiplier(tmp_path):
    raw = int8_tensor([1, 2, 3, 4, 5, 6], multiplier=2.0)
    path = write_model(tmp_path / "m.bin", [("W", INT8, (2, 3), raw)])
    expected = np.array([[1, 3, 5], [2, 4, 6]]) / 2.0
    np.testing.assert_array_equal(load_marian_tensors(path)["W"], expected)


def test_embedding_is_not_turned_round(tmp_path):
    raw = int8_tensor([1, 2, 3, 4, 5, 6], multiplier=1.0)
    path = write_model(tmp_path / "m.bin", [("Wemb", INT8, (2, 3), raw)])
    np.testing.assert_array_equal(load_marian_tensors(path)["Wemb"], [[1, 2, 3], [4, 5, 6]])


def test_settings_and_activation_multipliers_are_left_out(tmp_path):
    entries = [
        ("special:model.yml", 0x101, (4,), b"a: 1"),
        ("W_QuantMultA", FLOAT32, (1,), struct.pack("<f", 3.0)),
        ("b", FLOAT32, (1,), struct.pack("<f", 7.0)),
    ]
    assert list(load_marian_tensors(write_model(tmp_path / "m.bin", entries))) == ["b"]


@pytest.mark.parametrize("kept", [0, 10, 40, 70])
def test_truncated_file_is_refused_by_name(tmp_path, kept):
    values = np.ones(4, dtype="<f4")
    path = write_model(tmp_path / "m.bin", [("b", FLOAT32, (4,), values.tobytes())])
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(MarianFormatError, match=r"m\.bin is not a readable Marian model"):
        load_marian_tensors(path)


def test_other_version_is_refused(tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(struct.pack("<2Q", 2, 0))
    with pytest.raises(MarianFormatError, match="version must be 1, but is 2"):
        load_marian_tensors(path)
