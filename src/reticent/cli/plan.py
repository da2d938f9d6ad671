"""`reticent plan`: every function of `reticent.plan`, with its parameters as options."""

from __future__ import annotations

import json as json_format
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from importlib import import_module
from inspect import Parameter as SignatureParameter
from inspect import Signature, getdoc, isfunction, signature
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import App, Parameter, Token

from reticent.cli.dispatch import run
from reticent.cli.errors import UsageError
from reticent.cli.options import exact_number, whole_number

if TYPE_CHECKING:
    from reticent.plan import Plan
    from reticent.plan.advise import Advice

TYPE = re.compile(r"""(?:int|float|str|bool|callable|sequence|list|tuple|dict|mapping|array|[A-Z]\w*|[{"'])(?:\W|$)""")


def plan(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Compute how many rows an error needs, or which error a number of rows guarantees.

    `reticent plan` lists what can be planned, `reticent plan NAME --help` its parameters.
    """
    plans = planning_functions()
    if not arguments or arguments[0] in ("--help", "-h"):
        print("Usage: reticent plan NAME [OPTIONS]\n")
        width = max(map(len, plans), default=0)
        for name, function in plans.items():
            print(f"{name:{width}}  {(function.__doc__ or '').partition(chr(10))[0]}")
        print("\nreticent plan NAME --help shows the parameters of each.")
        return 0
    name, *options = arguments[0].replace("-", "_"), *arguments[1:]
    if name not in plans:
        raise UsageError(f"there is no plan {arguments[0]!r}; there are: {', '.join(plans)}")
    objects = _objects(plans[name])
    if objects and not {"--help", "-h"} & set(options):
        raise UsageError(
            f"plan {name} needs a {objects[0]}, which cannot be written as text: call reticent.plan.{name} in Python; "
            f"`reticent plan {name} --help` shows how"
        )
    return run(plan_app(name, plans[name]), options)


def planning_functions() -> dict[str, Callable[..., Plan]]:
    """The functions of reticent.plan, by name."""
    return {name: value for name, value in sorted(vars(import_module("reticent.plan")).items()) if isfunction(value)}


def _objects(function: Callable[..., Plan]) -> list[str]:
    """The required parameters that cannot be written as text."""
    hints = get_type_hints(function)
    return [
        name for name, parameter in signature(function).parameters.items()
        if parameter.default is parameter.empty and _as_option(hints[name], help=None) is None
    ]  # fmt: skip


def plan_app(name: str, function: Callable[..., Plan]) -> App:
    """A command that takes those parameters of a planning function that can be written as text."""
    hints = get_type_hints(function)
    described = parameter_help(function)
    objects, parameters = _objects(function), []
    for parameter in [] if objects else signature(function).parameters.values():
        kind = _as_option(hints[parameter.name], help=described.get(parameter.name))
        if kind is not None:
            parameters.append(parameter.replace(annotation=kind))
    flag = Annotated[bool, Parameter(negative="", help="Print a JSON object instead of text.")]
    json = SignatureParameter("json", SignatureParameter.KEYWORD_ONLY, default=False, annotation=flag)

    def command(*args: object, **options: object) -> int:
        as_text = not options.pop("json", False)
        try:
            found = function(*args, **options)
        except (TypeError, ValueError) as error:
            raise UsageError(f"plan {name}: {error}") from error
        print(_as_text(found) if as_text else json_format.dumps(asdict(found), indent=2, ensure_ascii=False))
        return 0

    command.__signature__ = Signature([] if objects else [*parameters, json])  # type: ignore[attr-defined]
    summary = (function.__doc__ or "").partition("\n")[0]
    if objects:
        needed = "\n\n".join(f"{each}: {described.get(each, 'an object')}" for each in signature(function).parameters)
        summary += (
            f"\n\nThis plan cannot be made on the command line, since it needs Python objects. In Python, call "
            f"reticent.plan.{name}({', '.join(objects)}, …) with:\n\n{needed}"
        )
    command.__doc__ = summary
    app = App(name=f"reticent plan {name}", version_flags=[])
    app.default(command)
    return app


def _as_text(found: Plan | Advice) -> str:
    """A plan or advice as text that names options instead of parameters."""
    return found.text(black_box="--black-box") if hasattr(found, "text") else str(found)


def parameter_help(function: Callable[..., object]) -> dict[str, str]:
    """What a numpydoc docstring says about each parameter.

    The description follows the type on lines of its own, or stands in its place.

    >>> def threshold(bits, epsilon, delta):
    ...     '''Plan a threshold.
    ...
    ...     Parameters
    ...     ----------
    ...     bits : int
    ...         Size of the domain,
    ...         as a power of two.
    ...     epsilon, delta : the privacy of the threshold.
    ...     '''
    >>> parameter_help(threshold)["bits"], parameter_help(threshold)["delta"]
    ('Size of the domain, as a power of two.', 'the privacy of the threshold.')
    """
    _, _, section = (getdoc(function) or "").partition("Parameters\n----------\n")
    entries = re.findall(r"^(\w[\w, ]*) : (.*)((?:\n +.*)*)", section.partition("\n\n")[0], flags=re.MULTILINE)
    return {
        name: " ".join((rest if rest and TYPE.match(first) else first + rest).split())
        for names, first, rest in entries
        for name in names.split(", ")
    }


def _as_option(hint: Any, *, help: str | None) -> Any:
    """How cyclopts reads a parameter of this type; None if it cannot be written as text."""
    from reticent.concepts import ConceptClass, Domain

    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = [kind for kind in kinds if kind in (int, str, bool, type(None)) or get_origin(kind) is Literal]
    if bool in kinds:
        return Annotated[bool, Parameter(negative="", help=help)]
    if {object, float, Fraction} & set(kinds):
        return Annotated[float | None, Parameter(converter=exact_number, help=help)]  # the function gets it exactly
    examples: dict[type, str] = {ConceptClass: "thresholds:64 or rectangles:2:16", Domain: "floats or datetimes:s"}
    for base, example in examples.items():
        if any(base in (kind, get_origin(kind)) for kind in kinds):
            text = f"{help or ''} Written as {example}."
            return Annotated[base | None, Parameter(converter=partial(_concept, base=base), help=text)]
    if len(plain) < len(kinds):  # a name may stand for an object, but text is no array
        return Annotated[str, Parameter(help=help)] if str in kinds and bytes not in kinds else None
    if int in kinds:
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        return Annotated[hint, Parameter(converter=whole_number(*words, any_word=str in kinds), help=help)]
    return Annotated[hint, Parameter(help=help)]


EXAMPLES = {"bits": 16, "dimensions": 2, "features": 4, "k": 3, "unit": "s"}  # by the names of parameters


def _concept(_: object, tokens: Sequence[Token], *, base: type) -> object:
    """A concept class or domain: its name in reticent.concepts, in any case, and its arguments after colons."""
    known = _writable(base)
    name, *arguments = tokens[0].value.split(":")
    if name.lower() not in known:
        raise ValueError(f"there is no {name!r}; there are: {', '.join(sorted(known))}")
    made, parameters = known[name.lower()]
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    if not required <= len(arguments) <= len(parameters):
        example = ":".join([name.lower(), *(str(EXAMPLES[parameter.name]) for parameter in parameters)])
        names = ", then ".join(parameter.name for parameter in parameters)
        raise ValueError(f"{name.lower()} needs {names}, as in {example}, got {tokens[0].value!r}")
    try:
        return made(*(int(each) if each.isdecimal() else each for each in arguments))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{tokens[0].value!r} cannot be made: {error}") from error


def _writable(base: type) -> dict[str, tuple[type, list[SignatureParameter]]]:
    """The classes below `base` whose arguments can be written as text, with these, by name."""
    found = {}
    for name, value in vars(import_module("reticent.concepts")).items():
        if not (isinstance(value, type) and issubclass(value, base) and value is not base):
            continue
        kinds = get_type_hints(value.__init__)
        taken = [each for each in signature(value).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        if all(kinds[each.name] in (int, str, int | None) for each in taken):
            found[name.lower()] = value, taken
    return found
