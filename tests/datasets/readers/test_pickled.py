"""Plain data comes out of a pickle as `pickle` would read it; anything else is refused, and nothing is run."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descant.data import DataError
from descant.datasets.readers.pickled import read_pickled

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def written(folder: Path, value: Any, protocol: int) -> Path:
    file = folder / "batch"
    file.write_bytes(pickle.dumps(value, protocol))
    return file


@given(value=PLAIN, protocol=st.integers(2, 4))
def test_plain_data_is_read_as_pickle_reads_it(
    tmp_path_factory: pytest.TempPathFactory, value: Any, protocol: int
) -> None:
    assert read_pickled(written(tmp_path_factory.mktemp("p"), value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_pickle_reads_them(tmp_path: Path, protocol: int, dtype: str, order: Any) -> None:
    array = np.asarray(np.arange(12).reshape(3, 4) * 3, dtype=dtype, order=order)
    read = read_pickled(written(tmp_path, {b"data": array, "labels": [1, 2, 3]}, protocol))
    assert read["data"].dtype == array.dtype and read["labels"] == [1, 2, 3]
    np.testing.assert_array_equal(read["data"], array)


class Runs:
    """A pickle of this makes the folder `proof` when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_malicious_file_runs_nothing(tmp_path: Path, protocol: int, hidden: bool) -> None:
    proof = tmp_path / "proof"
    value: Any = Runs(proof)
    if hidden:
        value = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, Runs(proof)]}
    file = written(tmp_path, value, protocol)
    with pytest.raises(DataError, match=r"names|uses") as caught:
        read_pickled(file)
    assert caught.value.file == file and not proof.exists()
    pickle.loads(file.read_bytes())  # it is malicious indeed
    assert proof.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\neval\n(S'1+1'\ntR.",
        b"c__builtin__\ngetattr\n.",
        b"(ios\nsystem\nS'true'\n.",  # INST
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"\x80\x02cnumpy.core.multiarray\nfromfile\n(S'x'\ntR.",
        b"\x80\x02cnumpy\nndarray\n.",  # a name on its own
        b"\x80\x02cnumpy\nndarray\n(K\x01tR.",  # a call of an admitted name that is no constructor here
        b"\x80\x02cnumpy\ndtype\n(U\x02O8K\x00K\x01tR.",  # numbers that are objects
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02]q\x00(K\x01h\x00b.",  # BUILD on a list
        b"\x80\x02P1\n.",  # a persistent id
    ],
)
def test_every_other_name_and_opcode_is_refused(tmp_path: Path, program: bytes) -> None:
    file = tmp_path / "program"
    file.write_bytes(program)
    with pytest.raises(DataError) as caught:
        read_pickled(file)
    assert caught.value.file == file


def test_a_file_that_refers_to_itself_many_times_stays_small(tmp_path: Path) -> None:
    nested: list[Any] = [0]
    for _ in range(60):
        nested = [nested, nested]
    read = read_pickled(written(tmp_path, nested, 2))
    assert read[0] is read[1]  # 2^60 if it were copied


@given(st.binary(max_size=60))
def test_noise_is_refused_or_plain(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    file = tmp_path_factory.mktemp("noise") / "batch"
    file.write_bytes(noise)
    try:
        read = read_pickled(file)
    except DataError as error:
        assert error.file == file
    else:
        assert isinstance(read, dict | list | str | bytes | int | float | np.ndarray | None)


@given(st.integers(0, 200))
def test_a_cut_file_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = io.BytesIO()
    pickle.dump({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}, whole, 2)
    file = tmp_path_factory.mktemp("cut") / "batch"
    file.write_bytes(whole.getvalue()[: min(cut, len(whole.getvalue()) - 1)])
    with pytest.raises(DataError):
        read_pickled(file)
