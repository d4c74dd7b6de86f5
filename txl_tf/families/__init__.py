"""The one place that lists model families. A family is added by one registration; other code looks families up here.

TensorFlow is imported when a function is called, so that importing this package does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from txl_tf.errors import InputError
from txl_tf.families.base import Family, Preset, Recipe
from txl_tf.families.transformer_xl import TRANSFORMER_XL
from txl_tf.families.xlnet import XLNET
from txl_tf.settings.run import Config, parse_config
from txl_tf.tasks.base import FineTuning, Pretraining, Task

if TYPE_CHECKING:
    import keras

_FAMILIES: dict[str, Family] = {}
Kind = TypeVar("Kind", bound=Task)


def register(family: Family) -> None:
    """Adds a family; ValueError if one of its presets has the same name as another family's."""
    taken = set(presets()) & set(family.presets)
    if taken:
        raise ValueError(f"family {family.name}: preset names {sorted(taken)} are taken")
    _FAMILIES[family.name] = family


def presets() -> dict[str, Preset]:
    """All presets by name."""
    return {name: preset for family in _FAMILIES.values() for name, preset in family.presets.items()}


def recipes() -> dict[str, Recipe]:
    """All recipes for fine-tuning by name."""
    return {name: recipe for family in _FAMILIES.values() for name, recipe in family.recipes.items()}


def family_of(config: Config | type[Config]) -> Family:
    """The family of a run's settings."""
    return _FAMILIES[config.family]


@overload
def task_of(config: Config | type[Config]) -> Task: ...


@overload
def task_of(config: Config | type[Config], kind: type[Kind]) -> Kind: ...


def task_of(config: Config | type[Config], kind: type[Task] = Task) -> Task:
    """The task of a run with these settings; InputError if it is not of this kind, Pretraining or FineTuning."""
    family = family_of(config)
    task = family.task(config.task)
    if not isinstance(task, kind):
        raise InputError(kind.refusal.format(title=family.title, task=config.task))
    return task


def _tasks() -> list[tuple[Family, Task]]:
    return [(family, task) for family in _FAMILIES.values() for task in family.tasks]


def able_to(ability: str) -> str:
    """The families and tasks whose models have a method of `txl_tf.Model`, for a message."""
    titles = [f"{family.title} for {task.name}" for family, task in _tasks() if ability in task.methods]
    return " or ".join(titles) or "another version of txl_tf"


def tuned_configs() -> dict[str, type[Config]]:
    """The settings of every task for which models are fine-tuned, by the task's name."""
    return {task.name: task.config for _, task in _tasks() if isinstance(task, FineTuning)}


def make_model(config: Any) -> keras.Model:
    """The model of a run with these settings, with its weights created."""
    return task_of(config).model(config.model)


def run_configs() -> list[type[Config]]:
    """The settings of every task of every family that learns from a Corpus."""
    return [task.config for _, task in _tasks() if isinstance(task, Pretraining)]


def with_article(config: Config | type[Config]) -> str:
    """The family's title with its article, for a sentence: "an XLNet", "a Transformer-XL"."""
    title = family_of(config).title
    return f"{'an' if title[0] in 'AEIOUX' else 'a'} {title}"


def require_generation(config: Config, where: str) -> None:
    """InputError if these models are not trained to continue texts; `where` names the model's place."""
    if not family_of(config).generates:
        raise InputError(
            f"{where} holds {with_article(config)}, which is not trained to "
            "continue texts: use scripts/fill.py, which fills blanks and, with --score, scores texts"
        )


def config_from_json(text: str, where: str = "config.json") -> Config:
    """The settings in the text of a config.json; missing settings have their defaults.

    InputError, with `where`, if it is not JSON, or for an unknown family, task, group or key, or a value of the wrong
    type.
    """
    groups = parse_config(text, where)
    groups.pop("format")
    name = groups.pop("family", TRANSFORMER_XL.name)
    family = _FAMILIES.get(name)
    if family is None:
        raise InputError(f"{where} is of family {name!r}; known are {', '.join(_FAMILIES)}")
    name = groups.pop("task", family.tasks[0].name)
    task = family.task(name)
    if task is None:
        names = ", ".join(task.name for task in family.tasks)
        raise InputError(f"{where} is of task {name!r}; {family.title} has {names}")
    return task.config.from_groups(groups, where)


register(TRANSFORMER_XL)
register(XLNET)
