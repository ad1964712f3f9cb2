"""Contract tests of backends: subclass `BackendContract`; define the fixtures `backend`, `kernel`, `config`, `args`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tunewright.kernel.generated_call import generate_call
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.ports.backend import Backend, Kernel
from tunewright.spaces.config import Config
from tunewright.stores import serialization

MODE = {"threads": "1"}


class BackendContract:
    """Tests of what `ports.backend.Backend` promises; `config` is one that works."""

    def _key(self, backend: Backend, kernel: Kernel, args: Sequence[Any]) -> Key:
        return backend.key(kernel, Signature.of(kernel.parameters, args), MODE)

    def test_equal_calls_have_equal_signatures(self, backend: Backend, kernel: Kernel, args: Sequence[Any]) -> None:
        def prepare(mark: Hashable, given: tuple[Any, ...]) -> Callable[..., Hashable]:
            return lambda *_: mark

        read = generate_call(kernel.parameters, backend.signature(kernel), {}, prepare)
        assert read(None, *args) == read(None, *args)
        assert hash(read(None, *args)) == hash(read(None, *args))

    def test_the_key_is_the_same_every_time_and_survives_travel(
        self, backend: Backend, kernel: Kernel, args: Sequence[Any]
    ) -> None:
        key = self._key(backend, kernel, args)
        assert key.digest == self._key(backend, kernel, args).digest
        assert serialization.load_key(serialization.dump_key(key)).digest == key.digest
        assert key.kernel == kernel.name
        assert key.mode == MODE

    def test_it_builds_loads_launches_and_times(
        self, backend: Backend, kernel: Kernel, config: Config, args: Sequence[Any]
    ) -> None:
        artifact = backend.build(kernel, config, Signature.of(kernel.parameters, args))
        launch = backend.load(kernel, artifact)
        launch(*args)
        timer = backend.timer(launch, args, 1)
        assert timer.clock
        assert timer(3) >= 0
        timer.flush(whole=False)
