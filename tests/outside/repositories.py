"""Repositories of tests that no registry has: fetched at one commit, or read from a git directory that is there."""

import os
from pathlib import Path

from tests.outside.suite import Room, UnavailableError


def repository(room: Room, variable: str, url: str, commit: str) -> Path:
    """Return a git directory that has a commit: what the environment's ``variable`` names, or a fetched one.

    Raises:
        UnavailableError: It does not have the commit, or the commit cannot be fetched.
    """
    git = Path(os.environ.get(variable) or room.cache / "repository.git")
    if _has(room, git, commit):
        return git
    if variable in os.environ:
        raise UnavailableError(f"{variable}={git} does not have the commit {commit}")
    try:
        room.fetch("git", "init", "--bare", "--quiet", str(git))
        room.fetch("git", f"--git-dir={git}", "fetch", "--quiet", "--depth", "1", url, commit)
    except UnavailableError as error:
        raise UnavailableError(f"{error}; {variable} may name a git directory of {url}") from None
    return git


def work_tree(room: Room, git: Path, commit: str, *paths: str) -> Path:
    """Write the files of a commit, or some of them, into the room's cache, and return their folder."""
    folder = room.cache / commit[:12]
    if not folder.exists():
        archive = f"git --git-dir={git} archive {commit} {' '.join(paths)}"
        room.fetch("sh", "-c", f"rm -rf new && mkdir new && {archive} | tar x -C new && mv new {folder}")
    return folder


def _has(room: Room, git: Path, commit: str) -> bool:
    with room.program("git", f"--git-dir={git}", "cat-file", "-e", f"{commit}^{{commit}}", log="fetch") as program:
        list(program)
    return program.status == 0
