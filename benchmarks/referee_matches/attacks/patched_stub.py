# idea: the code that runs candidates is replaced by code that does nothing
# seen: gpu-mode/pygpubench#15
# verdicts: wrong
import sys

for name, module in list(sys.modules.items()):
    if name.startswith("tunewright.referee"):
        for function in ("_deliver", "_returning", "find_mismatch", "judge"):
            if hasattr(module, function):
                setattr(module, function, lambda *args, **options: None)


def softmax(x):
    return x * 0
