"""The texts of PDF and HTML documents, read by a process that is killed when a document takes too long."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from transfer.formats import document_process
from transfer.formats.base import UnreadableFileError

# The longest time for a page of a PDF or a whole HTML document, and for any document.
PAGE_SECONDS = 60.0
DOCUMENT_SECONDS = 900.0
# Somebody waits for a preview: it has this many pages of a document, and takes no longer for them.
PREVIEW_PAGES, PREVIEW_SECONDS = 40, 10.0


@dataclass(slots=True)
class DocumentText:
    """The text of a document: its pages, if it has any, else one text; and its information."""

    pages: list[str]
    information: dict[str, Any]
    has_pages: bool = False


class DocumentReader:
    """The process that reads documents. It starts with the first one, and again after it had to be killed.

    For a preview it reads the first pages only.
    """

    def __init__(self, *, is_preview: bool = False) -> None:
        self._is_preview = is_preview
        self._process: subprocess.Popen[str] | None = None
        self._is_late = False

    def read(self, path: Path, kind: str) -> DocumentText:
        process = self._started()
        # The document as a whole, and each page, have their time.
        whole = self._timer(process, PREVIEW_SECONDS if self._is_preview else DOCUMENT_SECONDS)
        try:
            return self._answer(process, path, kind)
        finally:
            whole.cancel()

    def _answer(self, process: "subprocess.Popen[str]", path: Path, kind: str) -> DocumentText:
        pages: list[str] = []
        requests, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        with suppress(OSError):
            most = PREVIEW_PAGES if self._is_preview else None
            requests.write(json.dumps({"path": str(path.resolve()), "kind": kind, "most": most}) + "\n")
            requests.flush()
            while (line := self._line(process, answers)).endswith("\n"):
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise UnreadableFileError(answer["error"])
                if "page" not in answer:
                    return DocumentText(pages, answer, has_pages=kind == "pdf")
                pages.append(answer["page"])
        is_late, shown = self._is_late, self._is_late and self._is_preview
        self.close()
        if shown and pages:
            return DocumentText(pages, {}, has_pages=kind == "pdf")
        reason = "takes too long to read" if is_late else "is damaged: it stops the program that reads it"
        if shown:
            reason = "takes too long for a preview; the import has more time"
        raise UnreadableFileError(reason + (f", at page {len(pages) + 1}" if kind == "pdf" else ""))

    def _line(self, process: "subprocess.Popen[str]", answers: IO[str]) -> str:
        timer = self._timer(process, PAGE_SECONDS)
        try:
            return answers.readline()
        finally:
            timer.cancel()

    def _timer(self, process: "subprocess.Popen[str]", seconds: float) -> threading.Timer:
        def kill() -> None:
            self._is_late = True
            process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        return timer

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self.close()
            # -P: the folder of the program has modules that are named like packages.
            self._process = subprocess.Popen(
                [sys.executable, "-P", document_process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
        return self._process

    def close(self) -> None:
        self._is_late = False
        if process := self._process:
            self._process = None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe:
                        pipe.close()
