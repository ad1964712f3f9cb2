"""Launches of a call with a config, with hooks as Triton runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class HasHooks(Protocol):
    """What a launch needs of an autotuner."""

    fn: Any
    base_fn: Any
    pre_hook: Callable[..., Any]
    post_hook: Callable[..., Any]


class LaunchCall(NamedTuple):
    """A call to tune for: positional arguments, keyword arguments with the grid, and positional arguments by name."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]

    @property
    def all_named(self) -> dict[str, Any]:
        """All arguments by name, with the grid."""
        return {**self.named, **self.kwargs}

    def replace_each(self, replace: Callable[[Any], Any]) -> LaunchCall:
        """Returns the call with every argument replaced."""
        args = tuple(map(replace, self.args))
        kwargs = {name: replace(value) for name, value in self.kwargs.items()}
        return LaunchCall(args, kwargs, dict(zip(self.named, args, strict=False)))


class PreparedLaunch(NamedTuple):
    """What a cached launch needs: a config and its keyword arguments; if not plain, it has hooks or is counted."""

    config: Any
    options: dict[str, Any]
    is_plain: bool = True
    run_counted: Callable[[Any, Any], Any] | None = None


def prepared_launch(config: Any) -> PreparedLaunch:
    """Returns the launch of a config of Triton's."""
    return PreparedLaunch(config, config.all_kwargs(), config.pre_hook is None)


class BoundLaunchCall:
    """A config bound to a call; calling it launches with all hooks, as Triton benchmarks it."""

    def __init__(
        self, tuner: HasHooks, call: LaunchCall, config: Any, on_turn: Callable[[], None] = lambda: None
    ) -> None:
        self._tuner, self._args, self._config, self._on_turn = tuner, call.args, config, on_turn
        self._kwargs = {**call.kwargs, **config.all_kwargs()}
        self._all_args = {**call.named, **self._kwargs}

    @property
    def has_hooks(self) -> bool:
        """Whether hooks run beside its launches, which may change arguments."""
        names = ("user_defined_pre_hook", "user_defined_post_hook", "reset_to_zero", "restore_value")
        return bool(self._config.pre_hook or any(getattr(self._tuner, name, None) for name in names))

    def before(self) -> None:
        """Says whose turn it is, and runs the hooks before a launch."""
        self._on_turn()
        if self._config.pre_hook:
            self._config.pre_hook(self._all_args)
        self._tuner.pre_hook(self._all_args)

    def run(self, *, warmup: bool = False) -> None:
        """Launches without the hooks, unless it fails; with `warmup`, only compiles."""
        kwargs = {**self._kwargs, "warmup": True} if warmup else self._kwargs
        try:
            self._tuner.fn.run(*self._args, **kwargs)
        except Exception as error:
            self._tuner.post_hook(self._all_args, exception=error)
            raise

    def after(self) -> None:
        """Runs the hook after a launch."""
        self._tuner.post_hook(self._all_args, exception=None)

    def compile(self) -> None:
        """Compiles, with the hooks: they may set what the code depends on, such as the blocks of a descriptor."""
        self.before()
        self.run(warmup=True)
        self.after()

    def __call__(self) -> None:
        self.before()
        self.run()
        self.after()


def refuse_conflicts(configs: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises ValueError if a call sets what the configs set, as Triton does."""
    if conflicts := sorted({name for config in configs for name in config.kwargs} & kwargs.keys()):
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(conflicts)}."
            " Make sure that you don't re-define auto-tuned symbols."
        )
