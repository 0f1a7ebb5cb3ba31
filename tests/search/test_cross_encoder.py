"""Reranking with a cross-encoder: order, cache, and failures."""

import math
import threading
from importlib.util import find_spec
from urllib.parse import parse_qsl

import pytest

from search import cross_encoder
from search.cross_encoder import RerankUnavailableError, load_reader
from search.query import SearchQuery
from search.ranking import Ranked, reorder
from search.run import run
from search.why_not import why_not

needs_library = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("torch") is None,
    reason="sentence-transformers is not installed",
)


class Longest:
    """A reader that scores passages by length, and counts them."""

    def __init__(self):
        self.read = []

    def scores(self, text, passages):
        self.read += passages
        return [float(len(passage)) for passage in passages]


class Stuck(Longest):
    """A reader that blocks until it is released."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def scores(self, text, passages):
        if text != "the first one takes longer":
            self.go.wait(10)
        return super().scores(text, passages)


class Failing(Longest):
    def __init__(self, outcome):
        super().__init__()
        self.outcome = outcome

    def scores(self, text, passages):
        if text == "the first one takes longer":
            return [0.0]
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return [self.outcome] * len(passages)


@pytest.fixture
def use(settings):
    """Installs a loaded cross-encoder."""
    settings.RERANK_MODEL = "fake"
    settings.RERANK_TIMEOUT_MS = 10_000

    def use(reader):
        held = cross_encoder.reset(lambda source: reader)
        held._load_now("fake")
        reader.read.clear()
        return reader

    yield use
    cross_encoder.reset()


def ask(querystring, viewer):
    return run(SearchQuery.from_pairs(parse_qsl(querystring)), viewer)


# --- the order ----------------------------------------------------------------------------------------------------


def test_first_candidates_are_ordered_anew_and_the_others_stay_behind_them():
    fused = [Ranked(n, relevance=relevance) for n, relevance in [(1, 0.9), (2, 0.6), (3, 0.5), (4, 0.4), (5, 0.1)]]
    found = reorder(fused, {1: -2.0, 2: 8.0, 3: 3.0})
    assert [one.id for one in found] == [2, 3, 1, 4, 5]
    assert [round(one.relevance, 2) for one in found] == [0.9, 0.65, 0.4, 0.4, 0.1]
    assert [one.cross_encoder_rank for one in found] == [1, 2, 3, None, None]
    assert found[0].cross_encoder_score == 8.0


def test_results_are_in_the_order_of_the_second_reading(embedded, everyone, use, settings):
    settings.SEARCH_WEIGHTS = {"relevance": 1.0, "quality": 0.0, "recency": 0.0, "source": 0.0}
    reader = use(Longest())
    result = ask("q=green tea", everyone)
    scores = [hit.why.cross_encoder_score for hit in result.hits]
    assert None not in scores
    assert scores == sorted(scores, reverse=True)
    assert len(set(reader.read)) == result.total
    assert any(passage.startswith("Brew green tea at 70 °C\n") for passage in reader.read)
    assert result.warnings == ()


def test_only_the_first_candidates_are_read(embedded, everyone, use, settings):
    settings.RERANK_CANDIDATES = 2
    reader = use(Longest())
    result = ask("q=green tea", everyone)
    assert len(reader.read) == 2
    assert {hit.why.cross_encoder_rank for hit in result.hits} == {1, 2, None}


def test_all_pages_have_one_order_and_nothing_is_read_twice(embedded, everyone, use):
    reader = use(Longest())
    whole = [hit.id for hit in ask("q=tea boat&min_similarity=0.05", everyone).hits]
    paged = []
    for page in range(1, len(whole) // 2 + 2):
        paged += [hit.id for hit in ask(f"q=tea boat&min_similarity=0.05&page_size=2&page={page}", everyone).hits]
    assert paged == whole
    assert len(reader.read) == len(set(reader.read)) == len(whole)
    place = why_not(SearchQuery(text="tea boat", min_similarity=0.05), whole[2], everyone).place
    assert place == 3


# --- where it cannot be had ---------------------------------------------------------------------------------------


def order(querystring, viewer):
    return [hit.id for hit in ask(querystring, viewer).hits]


def notices(querystring, viewer):
    return [warning.message for warning in ask(querystring, viewer).warnings if warning.parameter == "rerank"]


def said(reason):
    return [f"The results are not reranked by the cross-encoder: {reason}."]


def test_one_that_takes_too_long_is_given_up_for_every_page(embedded, everyone, use, settings):
    settings.RERANK_MODEL = ""
    before = order("q=green tea", everyone)
    settings.RERANK_MODEL, settings.RERANK_TIMEOUT_MS = "fake", 10
    reader = use(Stuck())
    settings.RERANK_TIMEOUT_MS = 10
    assert order("q=green tea", everyone) == before
    reader.go.set()
    assert notices("q=green tea&page_size=1", everyone) == said("it took longer than 10 ms")
    assert order("q=green tea", everyone) == before


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        pytest.param(RuntimeError("out of memory"), "it failed: out of memory", id="raises"),
        pytest.param(math.nan, "it failed: it gave no number for a passage", id="no number"),
    ],
)
def test_one_that_fails_is_told(embedded, everyone, use, outcome, reason):
    use(Failing(outcome))
    assert notices("q=green tea", everyone) == said(reason)


# --- a real one ---------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_model(tmp_path):
    """A cross-encoder of two layers with random weights, and a vocabulary of letters."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,-", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")]
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]) + "\n")

    def made(labels=1):
        torch.manual_seed(7)
        config = BertConfig(
            vocab_size=5 + len(letters),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=128,
            initializer_range=0.5,
            num_labels=labels,
        )
        folder = tmp_path / f"cross-encoder-{labels}"
        BertForSequenceClassification(config).save_pretrained(folder)
        BertTokenizerFast(vocab_file=str(vocabulary), model_max_length=128).save_pretrained(folder)
        return folder

    return made


@needs_library
@pytest.mark.release
def test_cross_encoder_of_a_folder_orders_the_results(embedded, everyone, settings, tiny_model):
    settings.RERANK_MODEL, settings.RERANK_TIMEOUT_MS = str(tiny_model()), 60_000
    settings.SEARCH_WEIGHTS = {"relevance": 1.0, "quality": 0.0, "recency": 0.0, "source": 0.0}
    held = cross_encoder.reset()
    held._load_now(settings.RERANK_MODEL)
    try:
        result = ask("q=green tea", everyone)
        scores = [hit.why.cross_encoder_score for hit in result.hits]
        assert result.warnings == ()
        assert len(set(scores)) > 1
        assert scores == sorted(scores, reverse=True)
        assert order("q=green tea", everyone) == [hit.id for hit in result.hits]
    finally:
        cross_encoder.reset()


@needs_library
def test_model_that_gives_several_numbers_is_refused(tiny_model):
    with pytest.raises(RerankUnavailableError, match="gives 3 scores for a passage; it must give 1"):
        load_reader(str(tiny_model(labels=3)))


def test_one_that_cannot_be_loaded_is_told(embedded, everyone, settings):
    settings.RERANK_MODEL = "/nowhere/at-all"
    held = cross_encoder.reset()
    held._load_now(settings.RERANK_MODEL)
    try:
        wanted = "RERANK_MODEL=/nowhere/at-all is not a folder on this machine"
        if find_spec("sentence_transformers") is None:
            wanted = "sentence-transformers is not installed"
        assert notices("q=green tea", everyone) == said(wanted)
    finally:
        cross_encoder.reset()


def test_scores_are_kept_within_a_limit(use, settings, monkeypatch):
    monkeypatch.setattr(cross_encoder, "_MAX_SCORES", 3)
    reader = use(Longest())
    assert cross_encoder.cross_encode("tea", {n: "x" * n for n in range(1, 6)}) == {n: float(n) for n in range(1, 6)}
    assert len(cross_encoder._cross_encoder._scores) == 3
    assert cross_encoder.cross_encode("tea", {5: "xxxxx"}) == {5: 5.0}
    assert len(reader.read) == 5
