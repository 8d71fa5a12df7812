"""APIs whose form depends on the version or the client: their fields by version, and their translations."""

from typing import Final

from streams.protocol.wire.by_hand import groups, records, topics
from streams.protocol.wire.translation import AnyTranslation

#: Hand-written translations by API key.
BY_HAND: Final[dict[int, AnyTranslation]] = {
    translation.api.key: translation for module in (records, topics, groups) for translation in module.TRANSLATIONS
}
