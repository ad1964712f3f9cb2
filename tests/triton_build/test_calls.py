"""Arguments of a launch, from words."""

import pytest

from tunewright.backends.triton import calls
from tunewright.errors import SignatureError


def test_words_become_what_a_launch_would_look_at():
    args, named = calls.arguments("*fp16, *fp32:8, i32:16, i32, i64, 1, 2.5, u1, BLOCK=64, EVEN=True")
    assert [args[0].dtype, args[0].data_ptr() % 16, args[1].data_ptr() % 16] == ["torch.float16", 0, 8]
    assert args[2] % 16 == 0
    assert args[3] % 16
    assert args[4] > 1 << 32
    assert args[5:] == (1, 2.5, True)
    assert named == {"BLOCK": 64, "EVEN": True}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("*fp17", "known: fp16"),
        ("float", "neither a value nor a type"),
        ("i32:x", "divisible"),
        ("BLOCK=64,i32", "with names last"),
        ("fp64", "types"),
    ],
)
def test_what_cannot_be_read_says_what_could(text, says):
    with pytest.raises(SignatureError, match=says):
        calls.arguments(text)


def test_a_number_that_is_one_is_itself_as_in_a_call():
    assert calls.value("i32:1") == calls.value("1") == 1
