"""Explains in words why a memory is among the results, and its rank. Pure."""

from dataclasses import dataclass

from search.query import Mode, SearchQuery, Sort
from search.ranking import WINDOW, Ranked, ScoreParts
from search.result import FieldMatch, Hit
from text.formatting import listed, ordinal


@dataclass(frozen=True, slots=True)
class Reason:
    """A signal that contributed to the rank of a memory."""

    label: str
    text: str


def explain(hit: Hit, query: SearchQuery, threshold: float | None) -> tuple[Reason, ...]:
    """The reasons for a hit; empty without a query text. `threshold` is the minimum similarity of a match."""
    if not query.text:
        return ()
    reasons = [Reason("Words", _words(hit, query, threshold))]
    if hit.named:
        reasons.append(Reason("Name", f"carries {listed(hit.named)}"))
    if threshold is not None:
        reasons.append(Reason("Meaning", _meaning(hit, threshold)))
    if hit.why.fused_rank is not None and hit.why.neighbour_rank is not None:
        reasons.append(Reason("Neighbours", _neighbours(hit.why.fused_rank, hit.why.neighbour_rank)))
    if hit.why.cross_encoder_rank is not None:
        read = f"{ordinal(hit.why.cross_encoder_rank)} by the cross-encoder, score {hit.why.cross_encoder_score:.2f}"
        reasons.append(Reason("Reranked", read))
    if query.order != Sort.RELEVANCE:
        reasons.append(Reason("Order", f"{query.order.value}, not by relevance"))
    elif standing := _standing(hit.why):
        reasons.append(Reason("Score", standing))
    if hit.why.moved_below is not None:
        reasons.append(Reason("Superseded", f"by #{hit.why.moved_below}, so it was moved below it"))
    if hit.why.similar_to is not None:
        reasons.append(Reason("Similar", f"nearly the same as #{hit.why.similar_to}, grouped under it"))
    return tuple(reasons)


def _words(hit: Hit, query: SearchQuery, threshold: float | None) -> str:
    found = listed([_place(one) for one in hit.found])
    if threshold is not None and query.mode == Mode.SEMANTIC:
        return f"{found or 'none'}; ignored when matching by meaning only"
    if hit.why.keyword_rank is not None:
        # The match is in the target of a link, in an id, or beyond the searched part of a long text.
        return f"{ordinal(hit.why.keyword_rank)} by words: {found or 'elsewhere in the memory'}"
    return found or ("elsewhere in the memory" if threshold is None else "none, or elsewhere in the memory")


def _place(found: FieldMatch) -> str:
    where = "among the tags" if found.field == "tags" else f"in the {found.field}"
    return f"{listed([f'“{word}”' for word in found.words])} {where}"


def _meaning(hit: Hit, threshold: float) -> str:
    why, by = hit.why, "words or by name" if hit.named else "words"
    if why.similarity is None:
        return f"not embedded yet, so found by {by} only"
    if why.similarity < threshold:
        return f"similarity {why.similarity:.2f}, below the required {threshold:.2f}: it matches by its {by}"
    rank = "" if why.semantic_rank is None else f"{ordinal(why.semantic_rank)} by meaning, "
    return f"{rank}similarity {why.similarity:.2f} (at least {threshold:.2f})"


def _neighbours(before: int, after: int) -> str:
    if before == after:
        return f"{ordinal(after)} by words and meaning, and still with the results that it resembles"
    moved = "raised" if after < before else "lowered"
    return f"{ordinal(before)} by words and meaning, {moved} to {ordinal(after)} by the results that it resembles"


def _standing(why: Ranked) -> str:
    by = "words" if why.similarity is None else "words and meaning"
    if why.fused_rank is not None:
        by = by.replace(" and ", ", ") + " and neighbours"
    if why.score_parts is not None:
        return _sum(why.score, why.score_parts, by)
    if why.relevance is not None:
        return f"{why.relevance:.2f} by {by}; only the first {WINDOW} are scored further"
    return ""


def _sum(score: float | None, score_parts: ScoreParts, by: str) -> str:
    """The parts of the score; without the total for viewers who may not see it."""
    added = [
        (score_parts.quality, "quality (importance, confidence, pinned)"),
        (score_parts.recency, "recency"),
        (score_parts.source, "source"),
    ]
    if score is None or score_parts.relevance is None:
        return f"{listed([f'{value:.3f} for {name}' for value, name in added])}, added to {by}"
    return " + ".join(
        [
            f"{score:.3f} = {score_parts.relevance:.3f} for {by}",
            *(f"{value:.3f} {name}" for value, name in added),
        ]
    )
