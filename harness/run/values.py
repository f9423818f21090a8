"""Values for the records of a test: names, addresses, products, sentences; they depend only on the seed (J5).

`Values` needs no other package. Faker, which has many more kinds of values, is the extra `pytest-harrow[faker]`
(`harrow.faker`): its distribution has a pytest plugin, which pytest loads in every run of the project, also in runs
without Harrow. The same calls with the same seed return the same values on every machine.

```python
order = {"order": harrow.values.uuid(), "customer": harrow.values.name(), "amount": harrow.values.amount()}
```
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError

if TYPE_CHECKING:
    from faker import Faker


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Ada Alan Anita Barbara Carlos Chen Dana Edsger Elif Emil Fatima Frances Grace Hana Hugo Ines Ivan Jean John "
    "Karim Kenji Lena Leslie Lin Maria Mei Mina Nadia Niklaus Noah Olga Omar Paula Priya Radia Rosa Samir Sofia "
    "Tariq Tony Vera Yuki"
)
LAST_NAMES = _words(
    "Allen Backus Borg Chandra Cook Diaz Dijkstra Dubois Eriksen Fischer Garcia Goldberg Hamilton Haddad Hoare "
    "Hopper Ito Jansen Kaya Kim Kowalski Lamport Lee Liskov Lovelace Moreau Nguyen Novak Okafor Perlman Petrov "
    "Rossi Sato Schmidt Silva Singh Sousa Tanaka Turing Wang Weber Wirth Yilmaz"
)
CITIES = _words(
    "Accra Ankara Athens Bergen Berlin Bogota Boston Cairo Cork Dakar Delhi Dublin Geneva Hanoi Helsinki Istanbul "
    "Kyoto Lagos Lima Lisbon London Lyon Madrid Manila Milan Mumbai Nairobi Osaka Oslo Paris Porto Prague Quito "
    "Riga Rome Seoul Sofia Sydney Tallinn Tokyo Turin Vienna Warsaw Zurich"
)
PRODUCTS = _words(
    "anvil apron backpack bicycle blanket book bottle bowl brush candle chair clock coat cup desk drum fork glove "
    "guitar hammer hat jacket kettle knife ladder lamp mirror mug notebook pan pen pillow plate radio rope scarf "
    "shelf shoe spoon table tent towel umbrella vase wallet"
)
WORDS = _words(
    "a after again all also always and around at because before between both bright broken by can carry cold come "
    "day deep door down each early east every far field find first for from full garden give go good green half "
    "hand hear hold home house in into it keep large last late leave left letter light like little long look make "
    "many market morning mountain move much near never new night north now of often old on only open other over "
    "paper part people place quiet rain read red river road round run sea send short side slow small some south "
    "stand still stone stop street summer take tell that the then there through time to town train tree turn under "
    "up wait walk water way west where white wind window winter with word work world year yellow"
)


class Values:
    """Random values; two `Values` of equal seeds return the same sequence."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - repeatable, not secret

    def choice(self, words: Sequence[str]) -> str:
        """Return one of `words`."""
        return self._random.choice(words)

    def name(self) -> str:
        """Return a person's first and last name."""
        return f"{self.choice(FIRST_NAMES)} {self.choice(LAST_NAMES)}"

    def user_name(self) -> str:
        """Return a login name: lower case, with a number; seldom the same twice."""
        return f"{self.choice(FIRST_NAMES)}.{self.choice(LAST_NAMES)}{self.number(1, 9999)}".lower()

    def email(self) -> str:
        """Return an address in the reserved domain example.com."""
        return f"{self.user_name()}@example.com"

    def city(self) -> str:
        """Return a city."""
        return self.choice(CITIES)

    def product(self) -> str:
        """Return an article of a shop."""
        return self.choice(PRODUCTS)

    def number(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return self._random.randint(low, high)

    def amount(self, low: float = 1, high: float = 500) -> float:
        """Return an amount of money with two decimals, from `low` to `high`."""
        return round(self._random.uniform(low, high), 2)

    def uuid(self) -> str:
        """Return a UUID of version 4 as text."""
        from uuid import UUID

        return str(UUID(int=self._random.getrandbits(128), version=4))

    def word(self) -> str:
        """Return an English word."""
        return self.choice(WORDS)

    def sentence(self, words: int = 8) -> str:
        """Return `words` English words with a capital letter and a full stop."""
        return f"{' '.join(self.word() for _ in range(words)).capitalize()}."


def seeded_faker(seed: int) -> Faker:
    """Return a Faker whose values depend only on the seed; ConfigError where Faker is not installed."""
    try:
        from faker import Faker
    except ModuleNotFoundError:
        raise ConfigError("harrow.faker needs Faker: install pytest-harrow[faker], or use harrow.values") from None

    faker = Faker()
    faker.seed_instance(seed)
    return faker
