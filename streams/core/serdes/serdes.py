"""Serdes: the public names of serialization.

``serde_base`` defines serdes, ``serde_primitives`` has the serdes of Kafka, ``serde_json`` has canonical JSON,
``serde_types`` returns the serde for a type expression, ``serde_windows`` has the serdes for windowed keys, and
``serde_pinned`` has the serdes for undeclared types.
"""

from streams.core.serdes.exact_texts import exact_decoder as exact_decoder
from streams.core.serdes.exact_texts import exact_text as exact_text
from streams.core.serdes.exact_texts import read_exactly as read_exactly
from streams.core.serdes.parts import RefusedPart as RefusedPart
from streams.core.serdes.parts import Visit as Visit
from streams.core.serdes.parts import parts_of as parts_of
from streams.core.serdes.parts import visit_of as visit_of
from streams.core.serdes.serde_base import FormatSerde as FormatSerde
from streams.core.serdes.serde_base import PartialRow as PartialRow
from streams.core.serdes.serde_base import PartialSerde as PartialSerde
from streams.core.serdes.serde_base import Serde as Serde
from streams.core.serdes.serde_base import SerdeFormat as SerdeFormat
from streams.core.serdes.serde_base import inside as inside
from streams.core.serdes.serde_json import canonical_json as canonical_json
from streams.core.serdes.serde_json import is_immutable_form as is_immutable_form
from streams.core.serdes.serde_json import refusal_of as refusal_of
from streams.core.serdes.serde_json import refuse_non_finite as refuse_non_finite
from streams.core.serdes.serde_pinned import PinnedSerde as PinnedSerde
from streams.core.serdes.serde_primitives import BOOLEAN as BOOLEAN
from streams.core.serdes.serde_primitives import BYTES as BYTES
from streams.core.serdes.serde_primitives import DATETIME as DATETIME
from streams.core.serdes.serde_primitives import DOUBLE as DOUBLE
from streams.core.serdes.serde_primitives import INT32 as INT32
from streams.core.serdes.serde_primitives import LONG as LONG
from streams.core.serdes.serde_primitives import NULL as NULL
from streams.core.serdes.serde_primitives import PRIMITIVES as PRIMITIVES
from streams.core.serdes.serde_primitives import STRING as STRING
from streams.core.serdes.serde_primitives import UUID as UUID
from streams.core.serdes.serde_types import JSON as JSON
from streams.core.serdes.serde_types import fields_of as fields_of
from streams.core.serdes.serde_types import serde_for as serde_for
from streams.core.serdes.serde_windows import WINDOW_SUFFIXES as WINDOW_SUFFIXES
from streams.core.serdes.serde_windows import WindowedSerde as WindowedSerde
from streams.core.serdes.serde_windows import count_windowed as count_windowed
from streams.core.serdes.serde_windows import session_windowed as session_windowed
from streams.core.serdes.serde_windows import shown_windows as shown_windows
from streams.core.serdes.serde_windows import time_windowed as time_windowed
from streams.core.serdes.serde_windows import time_windowed_ms as time_windowed_ms
