"""A folder of the user's templates: what they replace or extend, in a sandbox, and their faults by file and line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.project.templates import MOST_TEXT

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

# Templates that a user's file of the same name replaces, or extends as "recon/NAME".
REPLACEABLE = (
    "report.html.j2",
    "report.md.j2",
    "compliance.html.j2",
    "compliance.md.j2",
    "trends.html.j2",
    "macros.html.j2",
    "symbols.html.j2",
)
PREFIX = "recon"
_OF_JINJA = frozenset(("caller", "kwargs", "loop", "self", "super", "varargs"))
_OF_PARENTS = frozenset(("m",))  # recon's templates import their macros under this name
_MOST_S = 60.0  # of processor time for one report
_DOCS = "docs/report_templates.md lists the variables"


def render(environment: Environment, folder: Path, template: str, values: Mapping[str, Any]) -> str:
    """Renders a template of recon's in which the folder's files come first.

    Args:
        environment: made by `environment`, with recon's filters and functions.
        folder: of the user.
        template: a name of `REPLACEABLE`.
        values: the variables.

    Raises:
        ConfigError: a file of the folder has a fault; the message names the file and the line.
    """
    from recon.project.templates import bounded_range, display_path, rendered, template_error

    environment.globals["range"] = bounded_range()
    try:
        _check(environment, folder, template, values.keys() | environment.globals.keys())
        return rendered(environment.get_template(template), **values)
    except ConfigError:
        raise
    except Exception as error:  # whatever an expression of the user's raises
        files = {str(file) for file in folder.rglob("*")}
        fault = template_error(_readable(error), files, str(folder / template), 1, _DOCS)
        raise ConfigError(str(fault).replace(str(folder), display_path(folder))) from error


def environment(folder: Path, own: Path, **options: Any) -> Environment:
    """A sandboxed environment that looks for a template in the user's folder, then in recon's own.

    Raises:
        ConfigError: there is no such folder.
    """
    from jinja2 import BaseLoader, ChoiceLoader, FileSystemLoader, FunctionLoader, PrefixLoader

    from recon.project.sandbox import Sandbox

    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder} of report templates; make it, or leave `templates` out")
    of_recon = FileSystemLoader(own)
    # No cache of compiled templates: code for the sandbox is other code.
    of_user = FunctionLoader(lambda name: _source(folder, name))
    loaders: list[BaseLoader] = [of_user, PrefixLoader({PREFIX: of_recon}), of_recon]
    made = Sandbox(loader=ChoiceLoader(loaders), most_of_value=MOST_TEXT, most_s=_MOST_S, **options)
    del made.globals["lipsum"]  # text without bounds
    return made


def _source(folder: Path, name: str) -> tuple[str, str, None] | None:
    """A file of the folder, as Jinja takes it; None where there is none.

    Raises:
        TemplateNotFound: its name leads out of the folder.
        ConfigError: a link leads out of the folder, or it is no file.
    """
    from jinja2.loaders import split_template_path

    from recon.project.templates import display_path, read_text

    file = folder.joinpath(*split_template_path(name))
    if not file.exists():
        return None
    if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
        raise ConfigError(
            f"{display_path(file)} is no file within the folder of report templates; copy there what it leads to"
        )
    return read_text(file), str(file), None


def _check(environment: Environment, folder: Path, template: str, known: Collection[str]) -> None:
    """What Jinja would pass over: files that replace nothing, blocks that recon's template does not have."""
    from jinja2 import meta, nodes

    from recon.project.templates import display_path

    trees: dict[str, nodes.Template] = {}
    for file in sorted(folder.rglob("*.j2")):
        name = file.relative_to(folder).as_posix()
        source = _source(folder, name)
        assert source is not None
        trees[name] = environment.parse(source[0], name, str(file))
        environment.compile(trees[name], name, str(file))  # finds filters and tests that do not exist
    used = {other for tree in trees.values() for other in meta.find_referenced_templates(tree) if other}
    for name, tree in trees.items():
        if name not in REPLACEABLE and name not in used:
            raise ConfigError(
                f"{display_path(folder / name)} replaces no template of recon and no other file includes it"
                f"{did_you_mean(name, REPLACEABLE)}"
            )
        _check_blocks(environment, trees, display_path(folder / name), tree)
    if template in trees:
        unknown = meta.find_undeclared_variables(trees[template]) - set(known) - _OF_JINJA - _OF_PARENTS
        for used_name in trees[template].find_all(nodes.Name):
            if used_name.name in unknown:
                place = f"{display_path(folder / template)}:{used_name.lineno}"
                near = did_you_mean(used_name.name, sorted(known), "")
                raise ConfigError(f"{place}: there is no variable {used_name.name!r} ({_DOCS}){near}")


def _check_blocks(
    environment: Environment, trees: Mapping[str, nodes.Template], place: str, tree: nodes.Template
) -> None:
    from jinja2 import nodes

    extended = next(iter(tree.find_all(nodes.Extends)), None)
    if extended is None or not isinstance(extended.template, nodes.Const):
        return
    if trees.get(extended.template.value) is tree:
        raise ConfigError(
            f"{place}:{extended.lineno}: the template extends itself; write "
            f'{{% extends "{PREFIX}/{extended.template.value}" %}}'
        )
    blocks = _blocks(environment, trees, extended.template.value)
    for node in tree.body:
        if isinstance(node, nodes.Block) and node.name not in blocks:
            raise ConfigError(
                f"{place}:{node.lineno}: {extended.template.value} has no block {node.name!r}"
                f"{did_you_mean(node.name, blocks, 'it has')}"
            )


def _blocks(environment: Environment, trees: Mapping[str, nodes.Template], name: str) -> list[str]:
    """The blocks of a template and of those that it extends."""
    from jinja2 import nodes

    tree = trees.get(name)
    if tree is None:
        assert environment.loader is not None
        tree = environment.parse(environment.loader.get_source(environment, name)[0], name)
    extended = next(iter(tree.find_all(nodes.Extends)), None)
    above = (
        _blocks(environment, trees, extended.template.value)
        if extended is not None and isinstance(extended.template, nodes.Const) and extended.template.value != name
        else []
    )
    return list(dict.fromkeys([*(block.name for block in tree.find_all(nodes.Block)), *above]))


def _readable(error: Exception) -> Exception:
    """A missing file as an error with a sentence."""
    from jinja2 import TemplateNotFound

    if not isinstance(error, TemplateNotFound):
        return error
    of_recon = [f"{PREFIX}/{name}" for name in REPLACEABLE]
    missing = ConfigError(f"there is no template {error.name!r}{did_you_mean(str(error.name), of_recon)}")
    return missing.with_traceback(error.__traceback__)
