"""Text becomes the numbers that LEAF gives it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from descant.datasets.readers.text import LETTERS, letters, vocabulary, words, words_of


@given(st.text(alphabet=LETTERS))
def test_letters_are_their_places_in_the_list(text: str) -> None:
    assert letters(text).tolist() == [LETTERS.index(letter) for letter in text]


@given(st.text())
def test_every_letter_gets_a_number_and_unknown_ones_a_space(text: str) -> None:
    places = [LETTERS.find(letter) for letter in text]
    assert letters(text).tolist() == [place if place >= 0 else LETTERS.index(" ") for place in places]


def test_there_are_eighty_letters() -> None:
    assert len(LETTERS) == len(set(LETTERS)) == 80


def test_words_are_split_as_leaf_does_in_lower_case() -> None:
    assert words_of("Don't STOP, @you!") == ["don't", "stop", ",", "you", "!"]


def test_the_vocabulary_is_the_most_frequent_words() -> None:
    known = vocabulary(["b a a", "c b a"], 2)
    assert known == {"a": 0, "b": 1}
    assert words(["a c b a a", "b"], known, 9, 4).tolist() == [[0, 9, 1, 0], [1, 9, 9, 9]]
