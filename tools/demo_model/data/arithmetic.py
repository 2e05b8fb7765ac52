"""One- and two-step word problems with short worked steps, and bare sums.

The steps are brief on purpose: the numbers decide, and a reply has to fit a small budget.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.demo_model.data import words as w

Problem = tuple[str, str, int]  # question, steps, answer
Template = Callable[[Random], Problem]


def _fill(rng: Random, questions: tuple[str, ...], **values: object) -> str:
    names = rng.sample(w.FIRST, 2)
    return rng.choice(questions).format(
        n=names[0], o=names[1], t=rng.choice(w.ITEMS), who=rng.choice(w.WHO), **values
    )


def _small(rng: Random) -> int:
    return rng.randint(2, 12)


def _two_digit(rng: Random) -> int:
    return rng.randint(11, 99)


def product(rng: Random) -> Problem:
    """So many in each of so many."""
    a, b = rng.choice(((_small(rng), _two_digit(rng)), (_small(rng), _small(rng))))
    if rng.random() < 0.5:
        a, b = b, a
    question = _fill(
        rng,
        (
            "A street has {a} houses. Each house has {b} windows. How many windows are there?",
            "Every one of the {a} shelves in a shop holds {b} {t}. How many {t} does the shop have?",
            "{n} fills {a} bags with {b} {t} each. How many {t} are in the bags?",
            "There are {a} rows of {b} seats in a hall. How many seats does the hall have?",
            "A {who} works {b} hours a day for {a} days. How many hours is that?",
            "One pack holds {b} {t}. How many {t} are in {a} packs?",
            "On each of {a} floors {b} doors are painted. How many doors are painted?",
        ),
        a=a,
        b=b,
    )
    return question, f"{a} * {b} = {a * b}", a * b


def product_less(rng: Random) -> Problem:
    """So many groups, then some go."""
    a, b = _small(rng), rng.randint(3, 25)
    c = rng.randint(1, a * b - 1)
    question = _fill(
        rng,
        (
            "{n} makes {a} plates of {b} cakes and gives away {c} cakes. How many cakes remain?",
            "A {who} brings {a} boxes with {b} {t} each. {c} of the {t} are broken. How many are whole?",
            "{a} buses with {b} people each arrive, and {c} people go home. How many people stay?",
            "A shop gets {a} cartons of {b} {t} and sells {c} {t}. How many {t} does it still have?",
            "{n} picks {b} flowers on each of {a} days and throws out {c}. How many flowers are left?",
        ),
        a=a,
        b=b,
        c=c,
    )
    return question, f"{a} * {b} = {a * b}\n{a * b} - {c} = {a * b - c}", a * b - c


def product_more(rng: Random) -> Problem:
    """So many groups, and some more."""
    a, b, c = _small(rng), rng.randint(3, 25), rng.randint(2, 60)
    question = _fill(
        rng,
        (
            "{n} owns {a} albums of {b} photos and {c} loose photos. How many photos does {n} own?",
            "A hotel has {a} floors of {b} rooms and {c} rooms in the yard. How many rooms are there?",
            "{n} saves {b} dollars a week for {a} weeks and gets {c} dollars as a gift. How many dollars does {n} have?",
            "A {who} carries {a} loads of {b} {t} and then {c} {t}. How many {t} are carried in all?",
        ),
        a=a,
        b=b,
        c=c,
    )
    return question, f"{a} * {b} = {a * b}\n{a * b} + {c} = {a * b + c}", a * b + c


def three_days(rng: Random) -> Problem:
    """A day, a multiple of it, and another day."""
    a, k, c = rng.randint(3, 40), rng.choice((2, 3)), rng.randint(2, 40)
    question = _fill(
        rng,
        (
            "A {who} drives {a} miles in the morning, {x} as far at noon and {c} miles in the evening. How many miles is that in total?",
            "{n} reads {a} pages on Friday, {x} as many on Saturday and {c} on Sunday. How many pages does {n} read altogether?",
            "A cafe sells {a} teas on day one, {x} as many on day two and {c} on day three. How many teas does it sell?",
            "{n} collects {a} shells, {o} collects {x} as many, and their mother finds {c}. How many shells do they have together?",
        ),
        a=a,
        x={2: "twice", 3: "three times"}[k],
        c=c,
    )
    total = a + k * a + c
    return question, f"{k} * {a} = {k * a}\n{a} + {k * a} + {c} = {total}", total


def discount(rng: Random) -> Problem:
    """A price times a number, less a rebate."""
    price, count = rng.randint(3, 25), _small(rng)
    off = rng.randint(1, min(40, price * count - 1))
    question = _fill(
        rng,
        (
            "A {g} is sold for {p} dollars. {n} takes {c} of them and has a coupon for {d} dollars. How many dollars does {n} pay?",
            "One ticket is ${p}. A group buys {c} tickets and is given ${d} back. What does the group pay in dollars?",
            "{n} orders {c} {t} at {p} dollars each. The shop takes {d} dollars off the bill. How much is the bill in dollars?",
        ),
        g=rng.choice(w.GOODS),
        p=price,
        c=count,
        d=off,
    )
    total = price * count
    return question, f"{count} * {price} = {total}\n{total} - {off} = {total - off}", total - off


def quotient(rng: Random) -> Problem:
    """How many times a rate goes into an amount."""
    rate, times = rng.randint(2, 30), rng.randint(2, 24)
    question = _fill(
        rng,
        (
            "A pool takes {a} gallons. A hose gives {r} gallons a minute. How many minutes does filling it take?",
            "{n} has to type {a} words and types {r} words a minute. How many minutes does {n} need?",
            "{a} {t} are packed {r} to a box. How many boxes are used?",
            "A {who} earns {r} dollars an hour. How many hours must the {who} work for {a} dollars?",
            "{a} children are put in teams of {r}. How many teams are there?",
            "A trail is {a} miles long. {n} walks {r} miles a day. After how many days is {n} at the end?",
        ),
        a=rate * times,
        r=rate,
    )
    return question, f"{rate * times} / {rate} = {times}", times


def fraction_rest(rng: Random) -> Problem:
    """A fraction does one thing and the rest another."""
    k, each = rng.choice((2, 3, 4, 5, 10)), rng.randint(2, 25)
    total = k * each
    part = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 10: "a tenth"}[k]
    question = _fill(
        rng,
        (
            "Of {a} guests {f} drink tea, and the others drink coffee. How many drink coffee?",
            "{n} has {a} {t} and gives {f} of them to {o}. How many does {n} keep?",
            "A field has {a} trees. After a storm {f} of them lie on the ground. How many still stand?",
            "There are {a} {t} in a shop. By noon {f} of them are sold. How many are unsold?",
            "{f} of the {a} players go home early. How many players stay?",
        ),
        a=total,
        f=part,
    )
    question = question[0].upper() + question[1:]
    return question, f"{total} / {k} = {each}\n{total} - {each} = {total - each}", total - each


def ages(rng: Random) -> Problem:
    """Older or younger, now and later or before."""
    a, d, later = rng.randint(8, 50), rng.randint(2, 7), rng.randint(2, 20)
    older = rng.random() < 0.6
    now = a + d if older else a - d
    question = _fill(
        rng,
        (
            "{n} is {a} years old. {o} is {d} years {c}. What will {o}'s age be in {l} years?",
            "{o} is {d} years {c} than {n}, who is {a}. How old is {o} after {l} more years?",
            "{n} has just turned {a}, and {o} is {c} by {d} years. In {l} years, how old will {o} be?",
        ),
        a=a,
        d=d,
        c="older" if older else "younger",
        l=later,
    )
    sign = "+" if older else "-"
    return question, f"{a} {sign} {d} = {now}\n{now} + {later} = {now + later}", now + later


def remainder(rng: Random) -> Problem:
    """What does not fill a whole group."""
    size, groups = rng.randint(3, 12), rng.randint(2, 20)
    rest = rng.randint(1, size - 1)
    total = size * groups + rest
    question = _fill(
        rng,
        (
            "{n} ties {a} flowers into bunches of {s}. How many flowers do not fit into a bunch?",
            "{a} {t} are put in full boxes of {s}. How many {t} remain outside?",
            "A {who} deals {a} cards evenly to {s} players and keeps the remainder. How many cards does the {who} keep?",
            "{a} pupils line up in rows of {s}. How many pupils are in no full row?",
        ),
        a=total,
        s=size,
    )
    full = size * groups
    return question, f"{groups} * {size} = {full}\n{total} - {full} = {rest}", rest


def downtime(rng: Random) -> Problem:
    """A rate over a time of which a part is lost."""
    rate, time = rng.randint(4, 60), rng.randint(5, 20)
    lost = rng.randint(1, 4)
    question = _fill(
        rng,
        (
            "A press makes {r} bottles an hour. How many does it make in {t_} hours if it is off for {l} hours?",
            "{n} can fold {r} shirts an hour. How many shirts does {n} fold in {t_} hours with a break of {l} hours?",
            "A pump moves {r} litres a minute. It runs for {t_} minutes but is blocked for {l} of them. How many litres does it move?",
        ),
        r=rate,
        t_=time,
        l=lost,
    )
    run = time - lost
    return question, f"{time} - {lost} = {run}\n{run} * {rate} = {run * rate}", run * rate


def below_zero(rng: Random) -> Problem:
    """Falls and rises around zero."""
    start, change = rng.randint(-8, 20), rng.randint(2, 25)
    down = rng.random() < 0.7
    end = start - change if down else start + change
    question = _fill(
        rng,
        (
            "At noon it is {a} degrees. By evening it is {c} degrees {x}. How many degrees is it in the evening?",
            "The thermometer shows {a} degrees and then {y} by {c} degrees. What does it show?",
            "It was {a} degrees yesterday and is {c} degrees {x} today. What is the temperature today?",
        ),
        a=start,
        c=change,
        x="colder" if down else "warmer",
        y="drops" if down else "rises",
    )
    return question, f"{start} {'-' if down else '+'} {change} = {end}", end


def large_sum(rng: Random) -> Problem:
    """One amount, a second that is more or less, and both together."""
    a, d = rng.randint(20, 400) * 10, rng.randint(1, 50) * 10
    more = rng.random() < 0.6
    b = a + d if more or a <= d else a - d
    sign = "+" if b > a else "-"
    question = _fill(
        rng,
        (
            "A museum has {a} visitors in one year and {d} {c} the next. How many visitors come in both years?",
            "A farm picks {a} pears in the first week and {d} {c} in the second. How many pears does it pick in total?",
            "{n} walks {a} steps on Monday and {d} {c} on Tuesday. How many steps are that over the two days?",
            "A stadium sells {a} tickets for the first game and {d} {c} for the second. How many tickets is that?",
        ),
        a=f"{a:,}" if rng.random() < 0.6 else a,
        d=d,
        c="more" if b > a else "fewer",
    )
    return question, f"{a} {sign} {d} = {b}\n{a} + {b} = {a + b}", a + b


def cut_off(rng: Random) -> Problem:
    """A whole, less several equal parts."""
    pieces, size = rng.randint(2, 9), rng.randint(2, 20)
    rest = rng.randint(1, 40)
    total = pieces * size + rest
    question = _fill(
        rng,
        (
            "{n} has {a} metres of cloth and cuts {p} strips of {s} metres from it. How many metres are left?",
            "From a board of {a} inches {p} parts of {s} inches are sawn. How long is the rest in inches?",
            "{n} has {a} dollars and buys {p} {t} at {s} dollars each. How many dollars does {n} have then?",
            "A barrel holds {a} litres. {p} jugs of {s} litres are drawn from it. How many litres stay in the barrel?",
        ),
        a=total,
        p=pieces,
        s=size,
    )
    used = pieces * size
    return question, f"{pieces} * {size} = {used}\n{total} - {used} = {rest}", rest


def two_products(rng: Random) -> Problem:
    """Two kinds of goods, each with a number and a price."""
    a, p, b, q = _small(rng), rng.randint(2, 30), _small(rng), rng.randint(2, 30)
    x, y = rng.sample(w.GOODS, 2)
    question = _fill(
        rng,
        (
            "{n} sells {a} {x}s at {p} dollars and {b} {y}s at {q} dollars. How many dollars does {n} get?",
            "A {x} costs ${p} and a {y} costs ${q}. What do {a} {x}s and {b} {y}s cost together in dollars?",
            "At a fair {a} adults pay {p} dollars each and {b} children pay {q} dollars each. How many dollars is that in all?",
            "A {who} lays {a} rows of {p} stones and {b} rows of {q} stones. How many stones are laid?",
        ),
        a=a,
        b=b,
        p=p,
        q=q,
        x=x,
        y=y,
    )
    first, second = a * p, b * q
    total = first + second
    return (
        question,
        f"{a} * {p} = {first}\n{b} * {q} = {second}\n{first} + {second} = {total}",
        total,
    )


def on_and_off(rng: Random) -> Problem:
    """Some leave and some join."""
    start = rng.randint(20, 250)
    off, on = rng.randint(2, start - 1), rng.randint(2, 90)
    question = _fill(
        rng,
        (
            "A ferry carries {a} people. At an island {x} leave and {y} board. How many people does it carry now?",
            "{n} has {a} {t}, loses {x} and finds {y}. How many {t} does {n} have at the end?",
            "There are {a} cars in a car park. {x} drive out and {y} come in. How many cars are there?",
            "A library has {a} books on a shelf. {x} are lent and {y} are returned. How many stand on the shelf?",
        ),
        a=start,
        x=off,
        y=on,
    )
    left = start - off
    return question, f"{start} - {off} = {left}\n{left} + {on} = {left + on}", left + on


def rest_at_rate(rng: Random) -> Problem:
    """What is left of a whole, at a rate."""
    rate, times, done = rng.randint(2, 30), rng.randint(2, 15), rng.randint(2, 150)
    total = rate * times + done
    question = _fill(
        rng,
        (
            "{n} wants to knit {a} rows and has knit {d}. {n} knits {r} rows an hour. How many more hours does it take?",
            "A road of {a} miles is being built, {d} miles are done, and {r} miles are built each month. How many months are still needed?",
            "{n} must save {a} dollars, has {d} and saves {r} a week. How many weeks are left?",
            "Of {a} letters {d} are sorted. A {who} sorts {r} a minute. How many minutes until all are sorted?",
        ),
        a=total,
        d=done,
        r=rate,
    )
    left = rate * times
    return question, f"{total} - {done} = {left}\n{left} / {rate} = {times}", times


def area(rng: Random) -> Problem:
    """Area or border of a rectangle of which one side is told by the other."""
    k, short = rng.choice((2, 2, 3)), rng.randint(2, 24)
    long = k * short
    if rng.random() < 0.5:
        question = _fill(
            rng,
            (
                "A room is {l} feet long and {x} as wide. How many square feet is it?",
                "A field measures {l} metres in length and its width is {x} of that. What is the field's area in square metres?",
            ),
            l=long,
            x={2: "half", 3: "a third"}[k],
        )
        return question, f"{long} / {k} = {short}\n{long} * {short} = {long * short}", long * short
    question = _fill(
        rng,
        (
            "A rug is {s} feet wide and {x} as long. How many square feet does it cover?",
            "A yard has a width of {s} yards and is {x} as long. What is its area in square yards?",
        ),
        s=short,
        x={2: "twice", 3: "three times"}[k],
    )
    return question, f"{k} * {short} = {long}\n{short} * {long} = {short * long}", short * long


def percent_of(rng: Random) -> Problem:
    """A percentage that leaves, is saved or is added."""
    p, hundreds = rng.choice((10, 20, 25, 40, 50, 60, 75)), rng.randint(1, 20)
    total = 20 * hundreds
    part = total * p // 100
    question = _fill(
        rng,
        (
            "{n} earns {a} dollars and saves {p}% of it. How many dollars does {n} save?",
            "In a box of {a} {t}, {p}% are red. How many {t} are red?",
            "A coat is {a} dollars and is now {p}% off. How many dollars cheaper is it?",
        ),
        a=total,
        p=p,
    )
    return question, f"{total} * {p} / 100 = {part}", part


def chain(rng: Random) -> Problem:
    """Three to five changes of one amount, as longer problems have them."""
    name, thing = rng.choice(w.FIRST), rng.choice(w.ITEMS)
    amount = rng.randint(5, 60)
    text, steps = f"{name} starts with {amount} {thing}.", []
    for _ in range(rng.randint(2, 4)):
        kind = rng.randrange(4)
        if kind == 0:
            more = rng.randint(2, 40)
            new, text = amount + more, f"{text} {name} buys {more} more."
            steps.append(f"{amount} + {more} = {new}")
        elif kind == 1 and amount > 4:
            less = rng.randint(1, amount - 2)
            new, text = amount - less, f"{text} Then {less} are given to a friend."
            steps.append(f"{amount} - {less} = {new}")
        elif kind == 2 and amount < 150:
            k = rng.choice((2, 3))
            new, text = amount * k, f"{text} The number {['doubles', 'triples'][k - 2]}."
            steps.append(f"{amount} * {k} = {new}")
        elif amount % 2 == 0:
            new, text = amount // 2, f"{text} Half of them are sold."
            steps.append(f"{amount} / 2 = {new}")
        else:
            new, text = amount + 1, f"{text} One more is found."
            steps.append(f"{amount} + 1 = {new}")
        amount = new
    return f"{text} How many {thing} are there now?", "\n".join(steps), amount


def bare(rng: Random) -> Problem:
    """A sum without a story."""
    kind = rng.randrange(4)
    a, b = rng.randint(2, 999), rng.randint(2, 99)
    if kind == 0:
        text, value = f"{a} + {b}", a + b
    elif kind == 1:
        text, value = f"{a} - {b}", a - b
    elif kind == 2:
        b = rng.randint(2, 15)
        text, value = f"{a} * {b}", a * b
    else:
        text, value = f"{a * b} / {b}", a
    question = rng.choice(("What is {t}?", "Work out {t}.", "How much is {t}?")).format(t=text)
    return question, f"{text} = {value}", value


TEMPLATES: tuple[Template, ...] = (
    product,
    product_less,
    product_more,
    three_days,
    discount,
    quotient,
    fraction_rest,
    ages,
    remainder,
    downtime,
    below_zero,
    large_sum,
    cut_off,
    two_products,
    on_and_off,
    rest_at_rate,
    area,
    percent_of,
    chain,
    bare,
)
