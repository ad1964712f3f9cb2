"""Arguments of a launch, from words."""

import pytest

from tunewright.errors import SignatureError
from tunewright.triton.static import call_arguments


def test_words_become_what_a_launch_would_look_at():
    args, named = call_arguments.parse_arguments("*fp16, *fp32:8, i32:16, i32, i64, 1, 2.5, u1, BLOCK=64, EVEN=True")
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
        ("i32:x", "no divisor"),
        ("BLOCK=64,i32", "follows a keyword argument"),
        ("fp64", "types"),
    ],
)
def test_what_cannot_be_read_says_what_could(text, says):
    with pytest.raises(SignatureError, match=says):
        call_arguments.parse_arguments(text)


def test_a_number_that_is_one_is_itself_as_in_a_call():
    assert call_arguments.parse_value("i32:1") == call_arguments.parse_value("1") == 1
