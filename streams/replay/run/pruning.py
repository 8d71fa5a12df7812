"""Which files of finished slices are still needed: those of outputs, and of the states that are kept.

After a slice only the files of the state that is no longer kept are looked at, so its cost does not depend on the
number of slices before it.  The first slice of a run looks at all files: an earlier run may have been killed before it
deleted what it no longer needed.
"""

from collections import deque
from collections.abc import Set

from attrs import define, field

from streams.replay.calls.state import MANIFEST, Outputs, ReplayState
from streams.replay.storage.places import Place

#: The folder of the slices within that of a replay.
SLICES = "slices"


@define(eq=False)
class Pruning:
    """The files that finished slices need, and the deletion of all others."""

    root: Place
    #: Number of slices whose states are kept.
    keep_states: int
    #: The files of the states that are kept, the newest last.
    _kept: deque[Set[str]] = field(factory=deque)
    #: The files with outputs.
    _outputs: set[str] = field(factory=set)
    #: Whether all files have been looked at since the start of this run.
    _has_begun: bool = False

    def clear(self) -> None:
        """Forget all slices."""
        self._kept.clear()
        self._outputs.clear()

    def add_outputs(self, outputs: Outputs) -> None:
        """Note the files of outputs, which are never deleted."""
        self._outputs |= files_of(outputs)

    def add_state(self, state: ReplayState) -> Set[str]:
        """Note the state after a slice; return the files of older states of which none is kept any more."""
        self._kept.append(state.files())
        dropped: set[str] = set()
        while len(self._kept) > self.keep_states:
            dropped |= self._kept.popleft()
        return dropped.difference(self._outputs, *self._kept) if dropped else dropped

    def prune(self, dropped: Set[str], next_number: int) -> None:
        """Delete the files ``dropped`` of slices; the first time also all others that no finished slice needs.

        The files of slices from ``next_number`` on, which have begun, are kept.

        Raises:
            ReplayError: the folder cannot be accessed.
        """
        folder = self.root.child(SLICES)
        if self._has_begun:
            for file in sorted(dropped):
                if file.startswith(f"{SLICES}/"):
                    self.root.child(file).delete()
            return
        self._has_begun = True
        needed = self._needed()
        for file in folder.files():
            is_done = int(file.partition("/")[0]) < next_number
            if is_done and not file.endswith(f"/{MANIFEST}") and f"{SLICES}/{file}" not in needed:
                folder.child(file).delete()

    def _needed(self) -> set[str]:
        return self._outputs.union(*self._kept)


def files_of(outputs: Outputs) -> set[str]:
    """Return the names of the files of outputs."""
    return {extent.file for extents in outputs.values() for extent in extents}
