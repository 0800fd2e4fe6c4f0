"""``@tp.program``: a Python function that becomes a `tapestry.program.Program` when its extents are bound."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, update_wrapper
from pathlib import PurePath
from typing import Any, get_args

from ..errors import TapestryError, UsageError, close_match
from ..extents import WANTED, is_extent
from ..names import check_name
from ..program import Program
from ..verify import verify
from .annotations import Spec, read_annotations
from .caller import locate, located, place, user_frame
from .door import spoken
from .operands import bind_operands, check_results, demand_states
from .python_errors import refused_by_python
from .settings import Setting, frozen, plain
from .tensor import Tensor
from .trace import Trace, current, tracing


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
    def hints(self) -> dict[str, Any]:
        """The evaluated annotations."""
        return read_annotations(self.function)

    @cached_property
    def specs(self) -> dict[str, Spec]:
        """Tensor parameters by name."""
        found = {name: self.hints.get(name) for name in self.signature.parameters}
        specs = {name: hint for name, hint in found.items() if isinstance(hint, Spec)}
        absent = [name for name in specs if self.signature.parameters[name].default is None]
        return {name: spec | None if name in absent else spec for name, spec in specs.items()}

    @cached_property
    def loose(self) -> tuple[str, ...]:
        """Parameters annotated as tensors without dtype and axes: they have a shape in calls only."""
        return tuple(name for name in self.signature.parameters if Tensor in (self.hints.get(name), *self._args(name)))

    def _args(self, name: str) -> tuple[Any, ...]:
        return get_args(self.hints.get(name))

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The other parameters."""
        parameters = self.signature.parameters.items()
        for _, parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(f"the parameter {parameter} has no fixed number of tensors", where=self.place)
        tensors = {*self.specs, *self.loose}
        return {name: Setting.of(p, self.hints.get(name)) for name, p in parameters if name not in tensors}

    @cached_property
    def extents(self) -> tuple[str, ...]:
        """Names of extents in the annotations, in order of appearance, but for those that an expression gives."""
        return _extents_of(self.specs.values())

    @property
    def source(self) -> str:
        code = self.function.__code__
        return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"

    @property
    def place(self) -> str:
        """How errors name it: "net (file.py:12)"."""
        return f"{self.__name__} ({self.source})"

    def bind(self, /, **values: Any) -> Program:
        """The program for these extents and settings; ``name=True`` takes the optional tensor of that name in.

        Raises UsageError naming what is missing or unknown, and whatever the traced function runs into.
        """
        present = self._present(values)
        settings = self._settings(values)
        bound = self._bound_extents(values, settings, present)
        settings |= {name: bound[name] for name in self.settings if name in bound}
        switches = {name: name in present for name, spec in self.specs.items() if spec.optional}
        bindings = {**bound, **switches, **{name: frozen(value) for name, value in settings.items()}}
        trace = Trace(self.__name__, self.place)
        try:
            with tracing(trace):
                extents = self._derived(bound)
                optional = {name: None for name in self.specs if name not in present}
                declared = {name: self._declare(trace, name, spec, extents) for name, spec in present.items()}
                result = self._run({**declared, **optional, **settings})
                check_results(self.hints.get("return"), result, extents, self.place)
                program = trace.finish(_outputs(result, self.place), bindings, self._meta())
        except TapestryError as error:
            locate(error, self.place)
            error.add_note(f"while binding {self.place}")
            raise
        verify(program)
        return program

    def _run(self, arguments: Mapping[str, Any]) -> Any:
        """The function on these arguments; UsageError for one that calls itself without end."""
        given = self.signature.bind_partial()
        given.arguments.update({name: arguments[name] for name in self.signature.parameters if name in arguments})
        try:
            return self.function(*given.args, **given.kwargs)
        except RecursionError:
            raise UsageError("the program's functions call themselves without end", where=self.place) from None
        except (TypeError, AttributeError) as error:
            refused = refused_by_python(error)
            if refused is None:
                raise
            raise refused from error

    def _present(self, values: Mapping[str, Any]) -> dict[str, Spec]:
        """The tensors of this binding: all but optional ones that are not asked for."""
        if self.loose:
            hint = 'say which: x: f32[Tensor, "n c"]'
            raise UsageError(f"{self.loose[0]} is annotated without dtype and axes", where=self.place, hint=hint)
        for name, spec in self.specs.items():
            if name in values and spec.optional and type(values[name]) is not bool and values[name] is not None:
                hint = f"bind({name}=True) takes the tensor in, bind({name}=False) leaves it out"
                raise UsageError(f"{name}={spoken(values[name])} is not true or false", where=self.place, hint=hint)
        return {name: spec for name, spec in self.specs.items() if not spec.optional or values.get(name)}

    def bind_text(self, values: Mapping[str, str]) -> Program:
        """`bind` for values written as text (``--set n=8 causal=false``), read by the type of each setting."""
        return self.bind(**{name: self._parse(name, text) for name, text in values.items()})

    def _parse(self, name: str, text: str) -> Any:
        optional = name in self.specs and self.specs[name].optional
        kind = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False if optional else 0)
        return (self.settings.get(name) or Setting.of(kind, None)).parse(text, self.place)

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._check_known(values)
        return {
            name: setting.value(values.get(name, setting.default), self.place)
            for name, setting in self.settings.items()
            if name in values or not setting.required
        }

    def _check_known(self, values: Mapping[str, Any]) -> None:
        optional = [name for name, spec in self.specs.items() if spec.optional]
        known = list(dict.fromkeys([*self.extents, *optional, *self.settings]))
        for name in values:
            if name not in known:
                raise UsageError(
                    f"there is no extent or setting {name!r}", where=self.place, hint=close_match(name, known)
                )

    def _bound_extents(
        self, values: Mapping[str, Any], settings: Mapping[str, Any], present: Mapping[str, Spec]
    ) -> dict[str, int]:
        bound: dict[str, int] = {}
        needed = _extents_of(present.values())
        for name in self.extents:
            value = plain(values.get(name, settings.get(name)))
            if value is not None and not is_extent(value):
                what = f"extent {name}={spoken(value)} is not an extent: {WANTED}"
                raise UsageError(what, where=self.place)
            if value is not None:
                bound[name] = value
        unset = (name for name in self.settings if name not in {*settings, *bound})
        missing = list(dict.fromkeys([*(name for name in needed if name not in bound), *unset]))
        if missing:
            given = ", ".join(f"{k}={spoken(v)}" for k, v in values.items()) or "nothing"
            sides = {"needs": ", ".join(missing), "given": given}
            example = [f"{name}=..." for name in missing]
            hint = f"bind({', '.join(example)}), or --set {' '.join(example)} of a command"
            raise UsageError("some extents are not given", where=self.place, sides=sides, hint=hint)
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
        if not all(map(is_extent, shape)):
            sides = {"declared": spec, "given": shape}
            hint = f"each of its extents is {WANTED}"
            raise UsageError(f"{name} has no shape", where=self.place, sides=sides, hint=hint)
        axes = [axis.name or f"d{k}" for k, axis in enumerate(spec.axes)]
        return trace.add_tensor(name, spec.dtype, [extent or 0 for extent in shape], axes, spec.role)

    def _meta(self) -> dict[str, str]:
        doc = inspect.getdoc(self.function)
        return {"source": self.source, **({"doc": doc} if doc else {})}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inside another program, its body: the same function on other tensors.

        Tensors are checked against the annotations, what it returns too. Any tensor may stand for an input or a param;
        a state is a state of the program that calls. Settings that name extents follow the shapes.
        """
        trace = current(self.__name__)
        call = located(self.__name__, place(user_frame()))
        arguments = self._arguments(args, kwargs, call)
        for name in self.loose:
            if not (isinstance(arguments.get(name), Tensor) or name not in arguments or arguments[name] is None):
                raise UsageError(f"{name} is {spoken(arguments[name])}, not a tensor", where=call)
        for value in arguments.values():
            if isinstance(value, Tensor) and value.is_tensor:
                trace.demand(value)
        extents = bind_operands(self.specs, arguments, call)
        demand_states(self.specs, arguments, call)
        arguments |= self._called_settings(arguments, kwargs, extents, call)
        with trace.calling(self._state_of(arguments), call):
            result = self._run(arguments)
        check_results(self.hints.get("return"), result, extents, call)
        return result

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], call: str) -> dict[str, Any]:
        """Arguments by name, defaults included; extents that shapes give may be left out."""
        try:
            bound = self.signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise UsageError(str(error), where=call, hint=str(self).partition("\n")[0]) from None
        parameters = self.signature.parameters
        missing = [
            name
            for name, parameter in parameters.items()
            if name not in bound.arguments and parameter.default is parameter.empty and name not in self.extents
        ]
        if missing:
            hint = str(self).partition("\n")[0]
            raise UsageError(f"the call lacks {', '.join(missing)}", where=call, hint=hint)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _called_settings(
        self, arguments: Mapping[str, Any], given: Mapping[str, Any], extents: Mapping[str, int], call: str
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, setting in self.settings.items():
            if name in extents and name not in given:
                found[name] = extents[name]
            elif name not in arguments:
                raise UsageError(f"the call lacks {name}", where=call, hint=f"{name} is the extent of no operand here")
            else:
                found[name] = setting.value(arguments[name], call)
            if name in extents and found[name] != extents[name]:
                sides = {"given": found[name], "shapes": extents[name]}
                raise UsageError(f"the setting {name} contradicts the shapes", where=call, sides=sides)
        return found

    def _state_of(self, arguments: Mapping[str, Any]) -> tuple[object, ...]:
        """All that decides what the function does: shapes and settings."""
        facts = [
            (name, value.shape, value.dtype) if isinstance(value, Tensor) else (name, repr(frozen(value)))
            for name, value in arguments.items()
        ]
        return (id(self), *facts)

    def __str__(self) -> str:
        rows = [f"{name}: {spec}" for name, spec in self.specs.items()]
        rows += [str(setting) for setting in self.settings.values()]
        doc = inspect.getdoc(self.function)
        head = f"program {self.__name__}({', '.join(rows)})"
        return head + ("\n" + "\n".join(f"    {line}".rstrip() for line in doc.splitlines()) if doc else "")

    def __repr__(self) -> str:
        return f"<program {self.place}>"


def program(function: Callable[..., Any]) -> ProgramFunction:
    """Declare a program: ``net.bind(n=8, ...)`` traces the function and gives a verified `Program`.

    The function returns its output tensors: one, a tuple, or a dict that names them.
    """
    if not inspect.isfunction(function):
        raise UsageError(f"tp.program decorates functions, not {spoken(function)}", where=place(user_frame()) or None)
    return ProgramFunction(function)


def _extents_of(specs: Iterable[Spec]) -> tuple[str, ...]:
    """Names of extents, in order of appearance, but for those that an expression gives."""
    axes = [axis for spec in specs for axis in spec.axes]
    given = {axis.name for axis in axes if axis.expr}
    return tuple(dict.fromkeys(name for axis in axes for name in axis.names if name not in given))


def _outputs(result: Any, where: str) -> dict[str, Tensor]:
    """Outputs by name; "" and names starting with a blank are for tensors without a variable's name."""
    hint = "return a tensor, a tuple of tensors, or a dict of them"
    if isinstance(result, Tensor):
        found: dict[str, Any] = {"": result}
    elif isinstance(result, Mapping):
        found = {check_name(key, "the name of an output"): tensor for key, tensor in result.items()}
    elif isinstance(result, tuple | list):
        found = {f" {k}": tensor for k, tensor in enumerate(result)}
    else:
        raise UsageError(f"the program returns {spoken(result)}, not a tensor", where=where, hint=hint)
    if not found:
        raise UsageError("the program returns no tensor", where=where, hint=hint)
    for label, tensor in found.items():
        if isinstance(tensor, Tensor):
            tensor.demand_whole()
        else:
            what = f"the output {label.strip()} is {spoken(tensor)}, not a tensor".replace("output  ", "result ")
            raise UsageError(what, where=where, hint=hint)
    return found
