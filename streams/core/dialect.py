"""How a CSV file is written, where it is not as RFC 4180 says, and the text that says so.

Of the project, this module imports only ``errors`` and ``nearest``.
"""

import codecs
from collections.abc import Iterator
from encodings.aliases import aliases
from typing import Any
from urllib.parse import quote as escaped
from urllib.parse import unquote

from attrs import field, fields, frozen

from streams.core.errors import ConfigError
from streams.core.nearest import meant, suggestion

#: Characters that are given by name in texts.
_NAMES = {"tab": "\t", "space": " "}


def _character(value: Any) -> Any:
    return _NAMES.get(value, value) if isinstance(value, str) else value


def _is_text(encoding: Any) -> bool:
    try:
        "".encode(encoding)  # Raises for codecs of bytes, such as base64.
    except (LookupError, TypeError, ValueError):
        return False
    return True


def _codec(name: Any) -> Any:
    if not _is_text(name):
        names = {alias.replace("_", "-") for pair in aliases.items() for alias in pair if _is_text(alias)}
        hint = suggestion(str(name), names) or "there are: latin-1, cp1252, utf-16 and all others of Python"
        raise ConfigError(f"Csv: there is no encoding {name!r}: {hint}")
    codec = codecs.lookup(name).name
    # A mark at the beginning is skipped in any case.
    return "utf-8" if codec in ("utf-8", "utf-8-sig") else name


def _columns(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


@frozen
class Csv:
    """The options of CSV files, for the argument ``file_format`` of what reads files.

    As text they follow the name of the format, as in ``csv?delimiter=;&encoding=latin-1``, and in the input of a
    command the path, as in ``csv:orders.csv?delimiter=;``.  Values are escaped as in URLs: ``%26`` is ``&``.

    Args:
        delimiter: the character between cells; ``"tab"`` and ``"space"`` are names.
        quote: the character around cells with delimiters or line ends, doubled within; ``""`` if there is none.
        encoding: the name of the encoding in Python.
        null: the text of cells that are null, such as ``"NULL"``; an empty cell of text is then empty text.  By default
            no text is null, and an empty cell is None where the type allows it.
        columns: the names of the columns, if there is no header line; in text with commas between them.

    Raises:
        ConfigError: an option is invalid.
    """

    delimiter: str = field(default=",", converter=_character)
    quote: str = field(default='"', converter=_character)
    encoding: str = field(default="utf-8", converter=_codec)
    null: str | None = None
    columns: tuple[str, ...] | None = field(default=None, converter=_columns)

    def __attrs_post_init__(self) -> None:
        for name, character in (("delimiter", self.delimiter), ("quote", self.quote or '"')):
            if not isinstance(character, str) or len(character) != 1 or character in "\r\n\0":
                hint = ", or 'tab'" if character == r"\t" else ""
                raise ConfigError(f"Csv: {name} has to be one character{hint}, not {character!r}")
        if self.delimiter == self.quote:
            raise ConfigError(f"Csv: {self.quote!r} is both delimiter and quote; give another quote, or '' for none")
        if not isinstance(self.null, str | None):
            raise ConfigError(f"Csv: null has to be a text, not {self.null!r}")
        names = self.columns
        if names is not None and not (isinstance(names, tuple) and names and all(isinstance(it, str) for it in names)):
            raise ConfigError(f"Csv: columns has to be names of columns, not {names!r}")
        doubles = [name for name in names or () if names is not None and names.count(name) > 1]
        if doubles:
            raise ConfigError(f"Csv: columns has {doubles[0]!r} twice; rename one")

    @classmethod
    def parse(cls, text: str) -> "Csv":
        """Return the options in a text such as ``delimiter=;&encoding=latin-1``.

        >>> Csv.parse("delimiter=;&columns=id,name")
        Csv(delimiter=';', quote='"', encoding='utf-8', null=None, columns=('id', 'name'))

        Raises:
            ConfigError: there is no such option, it is given twice, or its value is invalid.
        """
        names = [part.name for part in fields(cls)]
        options: dict[str, Any] = {}
        for part in text.split("&") if text else ():
            name, equals, value = part.partition("=")
            if name not in names:
                raise ConfigError(f"CSV has no option {name!r}: {meant(name, names)}")
            if not equals or name in options:
                raise ConfigError(f"option {name!r} of CSV {'is given twice' if equals else 'has no value'}")
            options[name] = tuple(map(unquote, value.split(","))) if name == "columns" else unquote(value)
        return cls(**options)

    def __str__(self) -> str:
        """Return the text of the options that are not the defaults, which ``parse`` reads."""
        return "&".join(self._texts())

    def _texts(self) -> Iterator[str]:
        names = {character: name for name, character in _NAMES.items()}
        for part in fields(type(self)):
            value = getattr(self, part.name)
            if value != part.default:
                values = value if part.name == "columns" else (names.get(value, value),)
                yield f"{part.name}={','.join(escaped(it, safe=_PLAIN) for it in values)}"


#: Characters that are not escaped in texts, as they have no meaning there.
_PLAIN = " !\"#$'()*/:;<=>?@[\\]^`{|}~"
