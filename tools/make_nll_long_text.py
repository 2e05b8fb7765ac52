"""Write the long text of the NLL suite: a harbour log whose later entries refer to earlier ones.

    python -m tools.make_nll_long_text > evalharness/data_files/nll_long_text.txt

Attention that drops far tokens cannot guess what an entry repeats from thousands of tokens
before; so a fault in long-context attention shows in the log-probabilities here.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

SEED = 20260105
ENTRIES = 270
SHIPS = (
    "Heron", "Marigold", "Saint Brannoc", "Little Venture", "Copper Maid", "Northern Diver",
    "Ploughman", "Isobel Grey", "Two Brothers", "Lantern", "Curlew", "Good Intent",
    "Sarah Pell", "Ormolu", "Petrel", "Black Swan",
)  # fmt: skip
MASTERS = (
    "Aldous Finch", "Ruth Calloway", "Piet Vermeer", "Ines Duarte", "Tobias Grieve", "Hanna Krol",
    "Samuel Oakes", "Bridget Moran", "Emil Sand", "Carys Pugh", "Joao Leal", "Wilma Stark",
    "Noah Tennant", "Greta Lund", "Owen Marsh", "Lucia Bravo",
)  # fmt: skip
CARGO = (
    ("barrels of herring", 20, 90), ("sacks of barley", 40, 200), ("bolts of sailcloth", 6, 40),
    ("casks of lamp oil", 5, 30), ("crates of window glass", 4, 25), ("loads of slate", 3, 18),
    ("bundles of willow", 30, 120), ("chests of tea", 8, 60), ("coils of rope", 12, 80),
)  # fmt: skip
PORTS = ("Velden", "Port Asher", "Kilmory", "Sandvik", "Low Harbour", "Trewarren", "Skarholm")
WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
SKIES = ("clear", "broken cloud", "thick haze", "steady rain", "sleet at dawn", "high thin cloud")
MONTHS = (
    ("January", 31), ("February", 28), ("March", 31), ("April", 30), ("May", 31), ("June", 30),
    ("July", 31), ("August", 31), ("September", 30), ("October", 31), ("November", 30),
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One entry about a ship that a later entry may repeat."""

    day: str
    ship: int
    amount: int
    cargo: str
    port: str


def days() -> list[str]:
    """Return the dates of the log in order."""
    return [f"{day} {month}" for month, length in MONTHS for day in range(1, length + 1)]


def arrival(rng: random.Random, day: str) -> tuple[Call, str]:
    """Return a new call and its sentence."""
    ship = rng.randrange(len(SHIPS))
    cargo, low, high = rng.choice(CARGO)
    call = Call(day, ship, rng.randint(low, high), cargo, rng.choice(PORTS))
    text = (
        f"The {SHIPS[ship]}, master {MASTERS[ship]}, came in from {call.port} "
        f"with {call.amount} {cargo}."
    )
    return call, text


def recollection(rng: random.Random, calls: list[Call]) -> str:
    """Return a sentence that repeats an earlier entry, near or far."""
    call = rng.choice(calls)
    name, master = SHIPS[call.ship], MASTERS[call.ship]
    forms = (
        f"A letter asks after the {call.amount} {call.cargo} that the {name} landed on "
        f"{call.day}; they went to the upper store.",
        f"The entry of {call.day} stands: {call.amount} {call.cargo}, the {name}, {master}, "
        f"from {call.port}.",
        f"{master} paid the dues that the {name} has owed since {call.day}, for "
        f"{call.amount} {call.cargo}.",
    )
    return rng.choice(forms)


def main() -> int:
    """Print the log."""
    rng = random.Random(SEED)
    calls: list[Call] = []
    lines = ["The Harbour Log of Skerry Point", ""]
    for day in days()[:ENTRIES]:
        wind, sky = rng.choice(WINDS), rng.choice(SKIES)
        parts = [f"{day}. Wind {wind}, {sky}."]
        if not calls or rng.random() < 0.55:
            call, text = arrival(rng, day)
            parts.append(text)
            calls.append(call)
        if calls and rng.random() < 0.6:
            parts.append(recollection(rng, calls))
        if len(parts) == 1:
            parts.append("Nothing to enter.")
        lines.append(" ".join(parts))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
