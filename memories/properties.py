"""Properties of a record besides the fields of a memory: own ones of a note, columns of a table that are no field.

They are stored in the raw record, under `own_properties`, as texts by name; they are shown, and searched. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import AliasChoices

from memories.records import MemoryRecord

OWN_PROPERTIES = "own_properties"
# Characters of a value, values of a name, and names that are stored.
_LONGEST, _MOST_VALUES, _MOST = 2_000, 50, 100
_ALIASES = (field.validation_alias for field in MemoryRecord.model_fields.values())
_NO_WORDS = frozenset({"yes", "no", "true", "false"})
# Names that mean fields, or something that imports add.
FIELD_NAMES = frozenset(MemoryRecord.model_fields).union(
    *(map(str, alias.choices) for alias in _ALIASES if isinstance(alias, AliasChoices)),
    {OWN_PROPERTIES, "note_file", "front_matter", "observations", "record", "stored"},
)


def own_properties(data: Mapping[str, Any]) -> dict[str, list[str]]:
    """The properties in the data of a note, which has them beside its fields."""
    names = data.keys() - FIELD_NAMES
    return properties_of({name: value for name, value in data.items() if name in names}) if names else {}


def properties_of(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Values as texts, by name; those of a group have its name before theirs."""
    found: dict[str, list[str]] = {}
    for name, value in _flat(values):
        listed = value if isinstance(value, list) else [value]
        texts = [text[:_LONGEST] for one in listed[:_MOST_VALUES] if (text := _value_text(one))]
        # Many numbers are no words, such as a vector.
        is_vector = len(listed) > _MOST_VALUES and all(isinstance(one, float | int) for one in listed)
        if texts and not is_vector and len(found) < _MOST:
            found[name.strip()[:200]] = texts
    return found


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in value.items() if str(inner) not in FIELD_NAMES)
        else:
            yield str(name), value


def _value_text(value: Any) -> str:
    if value is None or isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value).strip()


def stored_properties(raw: Any) -> dict[str, list[str]]:
    """The properties in a raw record, or in the part of it that has them; also as the text of its JSON."""
    raw = json.loads(raw) if isinstance(raw, str) else raw
    stored = raw.get(OWN_PROPERTIES, raw) if isinstance(raw, Mapping) else None
    if not isinstance(stored, Mapping):
        return {}
    # Somebody may have written anything there.
    listed = {name: value for name, value in stored.items() if isinstance(value, list)}
    return {name: [one for one in value if isinstance(one, str)] for name, value in listed.items()}


def property_words(raw: str | None) -> tuple[str, ...]:
    """The values of the properties in a raw record, which are searched with its memory."""
    if raw is None or f'"{OWN_PROPERTIES}"' not in raw:
        return ()
    record = json.loads(raw)
    return words_of(record.get(OWN_PROPERTIES) if isinstance(record, Mapping) else None)


def words_of(properties: Any) -> tuple[str, ...]:
    """The values of stored properties that are words, each once."""
    every = (one for values in stored_properties(properties).values() for one in values)
    return tuple(one for one in dict.fromkeys(every) if one not in _NO_WORDS)
