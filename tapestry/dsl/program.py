"""``@tp.program``: a Python function that becomes a `tapestry.program.Program` when its extents are bound."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from pathlib import PurePath
from typing import Any

from ..errors import TapestryError, UsageError, close_match
from ..program import Program
from ..verify import verify
from .annotations import Spec, read_annotations
from .caller import locate
from .tensor import Tensor
from .trace import Trace, tracing


class ProgramFunction:
    """A declared program. ``bind`` traces it; ``str`` shows its signature and docstring.

    Parameters annotated as tensors are inputs (or ``param[...]``, ``state[...]``); the names of their axes are extents.
    All other parameters are settings; a setting with the name of an extent gives that extent.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        update_wrapper(self, function)
        self.signature = inspect.signature(function)

    @cached_property
    def specs(self) -> dict[str, Spec]:
        """Tensor parameters by name."""
        hints = read_annotations(self.function)
        return {name: hints[name] for name in self.signature.parameters if isinstance(hints.get(name), Spec)}

    @cached_property
    def settings(self) -> dict[str, inspect.Parameter]:
        """The other parameters: numbers, strings and truth values."""
        return {name: p for name, p in self.signature.parameters.items() if name not in self.specs}

    @cached_property
    def extents(self) -> tuple[str, ...]:
        """Names of extents in the annotations, in order of appearance, but for those that an expression gives."""
        axes = [axis for spec in self.specs.values() for axis in spec.axes]
        given = {axis.name for axis in axes if axis.expr}
        return tuple(dict.fromkeys(name for axis in axes for name in axis.names if name not in given))

    @property
    def source(self) -> str:
        code = self.function.__code__
        return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"

    @property
    def place(self) -> str:
        """How errors name it: "net (file.py:12)"."""
        return f"{self.__name__} ({self.source})"

    def bind(self, **values: Any) -> Program:
        """The program for these extents and settings.

        Raises UsageError naming what is missing or unknown, and whatever the traced function runs into.
        """
        settings = self._settings(values)
        bound = self._bound_extents(values, settings)
        trace = Trace(self.__name__, self.place)
        try:
            with tracing(trace):
                extents = self._derived(bound)
                arguments = {name: self._declare(trace, name, spec, extents) for name, spec in self.specs.items()}
                result = self.function(**arguments, **settings)
                program = trace.finish(_outputs(result, self.source), {**bound, **settings}, self._meta())
        except TapestryError as error:
            locate(error)
            error.add_note(f"while binding {self.place}")
            raise
        verify(program)
        return program

    def bind_text(self, values: Mapping[str, str]) -> Program:
        """`bind` for values written as text (``--set n=8 causal=false``), read by the type of each setting."""
        return self.bind(**{name: self._parse(name, text) for name, text in values.items()})

    def _parse(self, name: str, text: str) -> Any:
        parameter = self.settings.get(name)
        kind = _kind(parameter) if parameter else int
        if kind not in (int, float, str, bool):
            raise UsageError(f"{name} is a {kind.__name__}, which cannot be given as text", where=self.place)
        try:
            return _parse_bool(text) if kind is bool else kind(text)
        except ValueError:
            raise UsageError(f"{name}={text} is not {_article(kind)}", where=self.place) from None

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._check_known(values)
        settings: dict[str, Any] = {}
        for name, parameter in self.settings.items():
            if name in values:
                settings[name] = self._typed(name, parameter, values[name])
            elif parameter.default is not inspect.Parameter.empty:
                settings[name] = parameter.default
        return settings

    def _check_known(self, values: Mapping[str, Any]) -> None:
        known = list(dict.fromkeys([*self.extents, *self.settings]))
        for name in values:
            if name not in known:
                raise UsageError(
                    f"there is no extent or setting {name!r}", where=self.place, hint=close_match(name, known)
                )

    def _typed(self, name: str, parameter: inspect.Parameter, value: Any) -> Any:
        kind = _kind(parameter)
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind and not (value is None and parameter.default is None):
            hint = f"declared {_declaration(parameter)}"
            raise UsageError(f"{name}={value!r} is not {_article(kind)}", where=self.place, hint=hint)
        return value

    def _bound_extents(self, values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, int]:
        bound: dict[str, int] = {}
        for name in self.extents:
            value = values.get(name, settings.get(name))
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"extent {name}={value!r} is not a positive integer", where=self.place)
            if value is not None:
                bound[name] = value
        missing = [n for n in self.extents if n not in bound] + [n for n in self.settings if n not in settings]
        if missing:
            given = ", ".join(f"{k}={v!r}" for k, v in values.items()) or "nothing"
            sides = {"needs": ", ".join(missing), "given": given}
            example = ", ".join(f"{name}=..." for name in missing)
            raise UsageError("some extents are not given", where=self.place, sides=sides, hint=f"bind({example})")
        return bound

    def _derived(self, bound: Mapping[str, int]) -> dict[str, int]:
        """The extents, with those that ``name=expression`` gives."""
        found = dict(bound)
        for spec in self.specs.values():
            for axis in spec.axes:
                extent = axis.extent(found)
                if axis.name and axis.expr and extent is not None:
                    found[axis.name] = extent
        return found

    def _declare(self, trace: Trace, name: str, spec: Spec, bound: Mapping[str, int]) -> Tensor:
        if len(spec.dtypes) != 1:
            raise UsageError(f"{name} has no definite dtype", where=self.place, sides={"declared": spec})
        shape = [axis.extent(bound) for axis in spec.axes]
        if any(extent is None or extent < 1 for extent in shape):
            sides = {"declared": spec, "given": shape}
            raise UsageError(f"{name} has no positive shape", where=self.place, sides=sides)
        axes = [axis.name or f"d{k}" for k, axis in enumerate(spec.axes)]
        return trace.add_tensor(name, spec.dtype, [extent or 0 for extent in shape], axes, spec.role)

    def _meta(self) -> dict[str, str]:
        doc = inspect.getdoc(self.function)
        return {"source": self.source, **({"doc": doc} if doc else {})}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inside another program, its body: the same function on other tensors."""
        return self.function(*args, **kwargs)

    def __str__(self) -> str:
        rows = [f"{name}: {spec}" for name, spec in self.specs.items()]
        rows += [_declaration(parameter) for parameter in self.settings.values()]
        doc = inspect.getdoc(self.function)
        head = f"program {self.__name__}({', '.join(rows)})"
        return head + ("\n" + "\n".join(f"    {line}".rstrip() for line in doc.splitlines()) if doc else "")

    def __repr__(self) -> str:
        return f"<program {self.place}>"


def program(function: Callable[..., Any]) -> ProgramFunction:
    """Declare a program: ``net.bind(n=8, ...)`` traces the function and gives a verified `Program`.

    The function returns its output tensors: one, a tuple, or a dict that names them.
    """
    return ProgramFunction(function)


def _outputs(result: Any, where: str) -> dict[str, Tensor]:
    """Outputs by name; "" and names starting with a blank are for tensors without a variable's name."""
    if isinstance(result, Tensor):
        found: dict[str, Any] = {"": result}
    elif isinstance(result, Mapping):
        found = dict(result)
    elif isinstance(result, tuple | list):
        found = {f" {k}": tensor for k, tensor in enumerate(result)}
    else:
        found = {}
    if not found or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        hint = "return a tensor, a tuple of tensors, or a dict of them"
        raise UsageError(f"the program returns {type(result).__name__}", where=where, hint=hint)
    return found


def _kind(parameter: inspect.Parameter) -> type:
    """The type of a setting: that of its default, else the one its annotation names, else an integer."""
    if parameter.default is not inspect.Parameter.empty and parameter.default is not None:
        return type(parameter.default)
    text = str(getattr(parameter.annotation, "__name__", parameter.annotation))
    return next((kind for kind in (int, float, str, bool) if kind.__name__ in text), int)


def _declaration(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {_kind(parameter).__name__}{default}"


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(text)
    return text.lower() in ("true", "1", "yes")


def _article(kind: type) -> str:
    return {"int": "an integer", "float": "a number", "str": "a string", "bool": "true or false"}.get(
        kind.__name__, kind.__name__
    )
