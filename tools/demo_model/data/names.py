"""Names, titles and short sentences that stand in no list, so that a model copies what it reads.

With fixed lists alone a small model learns the lists by heart and answers with their words.
"""

from __future__ import annotations

from random import Random

from tools.demo_model.data import words as w

_SENTENCES = (
    "The {a} {n} is ready",
    "Please bring the {a} {n}",
    "We need a new {n} by Friday",
    "I saw your {n} near the {m}",
    "Where is the {a} {n}?",
    "Thank you for the {n} and the {m}",
    "The {n} starts at noon",
    "Can you check the {a} {n} again?",
    "Do not forget the {n}!",
    "My {n} is {a}, but the {m} is not",
)
_TITLES = ("The {A} {N}", "{A} {N}", "{N} of the {M}", "{N} and {M}", "A {N} for the {M}", "{N}")


def word(rng: Random) -> str:
    """A capitalised word that no dictionary has."""
    middle = "".join(rng.choice(w.NAME_MIDDLES) for _ in range(rng.choice((0, 1, 1, 2))))
    return (rng.choice(w.NAME_STARTS) + middle + rng.choice(w.NAME_ENDS)).capitalize()


def title(rng: Random) -> str:
    """A title in plain words, such as of a film."""
    first, second = rng.sample(w.NOUNS, 2)
    return rng.choice(_TITLES).format(
        A=rng.choice(w.ADJECTIVES).capitalize(), N=first.capitalize(), M=second.capitalize()
    )


def sentence(rng: Random) -> str:
    """A short message."""
    first, second = rng.sample(w.NOUNS, 2)
    return rng.choice(_SENTENCES).format(a=rng.choice(w.ADJECTIVES), n=first, m=second)


def proper(rng: Random) -> str:
    """A proper name of one to three words."""
    kind = rng.random()
    if kind < 0.4:
        return word(rng)
    if kind < 0.65:
        return f"{word(rng)} {word(rng)}"
    return title(rng)


def are_open(bank: tuple[str, ...]) -> bool:
    """Whether a list is of proper names, so that any other name may stand beside them."""
    return all(entry[0].isupper() and not entry.isupper() and len(entry) > 2 for entry in bank)
