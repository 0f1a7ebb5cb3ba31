"""Run by an interpreter that has basic-memory: its own code reads notes. Arguments: their folder, and a file to write.

The file has, by title, what basic-memory finds in each note.
"""

import asyncio
import json
import sys
from pathlib import Path

from basic_memory.markdown.entity_parser import EntityParser  # type: ignore[import-not-found]


async def main(folder: Path, file: Path) -> None:
    parser = EntityParser(folder)
    notes = [await parser.parse_file(note.relative_to(folder)) for note in sorted(folder.rglob("*.md"))]
    found = {
        note.frontmatter.title: {
            "type": note.frontmatter.type,
            "tags": note.frontmatter.tags,
            "observations": [one.model_dump() for one in note.observations],
            "relations": [one.model_dump() for one in note.relations],
        }
        for note in notes
    }
    file.write_text(json.dumps(found), encoding="utf-8")


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
