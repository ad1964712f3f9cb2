import numpy as np
import pytest

from tunewright import Config


def test_a_config_is_a_value() -> None:
    assert Config(a=1, b=2) == Config({"b": 2, "a": 1})
    assert hash(Config(a=1, b=2)) == hash(Config(b=2, a=1))
    assert Config(a=1).with_value("a", 2) == Config(a=2)
    assert str(Config(b=2, a=1)) == "a=1 b=2"


def test_numpy_scalars_become_plain_values() -> None:
    config = Config(a=np.int64(3), b=np.float32(0.5), c=np.bool_(True))
    assert config == Config(a=3, b=0.5, c=True)
    assert [type(value) for value in config.values()] == [int, float, bool]


def test_what_is_no_plain_value_is_refused() -> None:
    with pytest.raises(TypeError, match="a knob's value is"):
        Config(a=[1, 2])
