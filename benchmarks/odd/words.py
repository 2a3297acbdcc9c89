"""Words that nobody should type, and words that were typed wrong."""

import random
import re
from collections.abc import Sequence


def apart(text: str) -> tuple[str, ...]:
    """The words that stand two spaces apart, or on lines of their own."""
    return tuple(re.split(r"\s{2,}", text.strip()))


NUMBERS = apart(
    """
    nan  inf  -inf  -1  0  -0.0  1  0.5  1e300  1e-300  1e24  1E3  007  1_000  0x10  1,5  1.5.2  +1  ٣  ½
    2147483648  9223372036854775808  9999999999999999999999999999999999999999  1e  .  1 000
    """
)
TEXTS = apart(
    r"""
    None  null  true  False  ~  -  --  ---  =  ==  a=b=c  a=  =b  ,  ,,  a,b  a,,b  ,a  *  ?  **  [  ]  []
    [[1]]  {}  {a: b}  {a  (  )  a(b)  [1,2  ${seed}  ${  ${oc.env:HOME}  ${nix:1}  ${${seed}}  $(id)  '  "
    'a  "a b"  `  \  a\  \n  日本語  é  é  😀  ﬀ  ../x  .  ..  ...  one/two  %s  %(x)s  %  {0}  #  !  ;  |  &
    <  >  @a  :  ::  a:b  a: b  on  y  -h  --help  -m  -x  --nix  --seed  !!python/name:os.system  *a  &a
    ? a  - a  range(0,3)  choice(1,2)  interval(0,1)  glob(*)  int(a)  nix(1)  sort(3,1)
    """
)
UNSEEN = ("", " ", "a\nb", "\n", "a\tb", "\r", "\x01", "\x1b[31mred", "\x7f", "\u2028", "\u202egnp", "\ufeff")
NOT_UTF_8 = ("\udcff", "a\udc80b")
LONG = ("x" * 300, "x" * 20_000)
ODD = (*NUMBERS, *TEXTS, *UNSEEN, *NOT_UTF_8, *LONG)
CHARACTERS = "abz019 =,.-+~*?()[]{}$:;#'\"\\\n\té日\udcff"
# No word becomes an absolute path: it could name a file outside the sandbox.
ABSOLUTE = re.compile("(^|=)/+")


def odd_for(draw: random.Random, sane: str) -> str:
    """In the place of a sane value: mostly a number for a number."""
    is_number = sane.replace(".", "").replace("e-", "").isdigit()
    return draw.choice(NUMBERS if is_number and draw.random() < 0.7 else ODD)


def perhaps_misspelt(draw: random.Random, words: Sequence[str]) -> list[str]:
    words = [*words]
    for _ in range(draw.choice((0, 0, 0, 0, 1, 1, 2))):
        words = misspelt(draw, words)
    return words


def misspelt(draw: random.Random, words: Sequence[str]) -> list[str]:
    """The words with one of them dropped, doubled, moved or replaced, or one character of it changed."""
    words = [*words]
    if not words:
        return [draw.choice(ODD)]
    place = draw.randrange(len(words))
    word = words[place]
    at = draw.randrange(len(word) + 1)
    match draw.choice(("drop", "double", "move", "replace", "cut", "insert", "turn")):
        case "drop":
            del words[place]
        case "double":
            words.insert(draw.randrange(len(words) + 1), word)
        case "move":
            words.insert(draw.randrange(len(words)), words.pop(place))
        case "replace":
            words[place] = draw.choice(ODD)
        case "cut":
            words[place] = word[:at] + word[at + 1 :]
        case "insert":
            words[place] = word[:at] + draw.choice(CHARACTERS) + word[at:]
        case "turn":
            words[place] = word[:at] + word[at:].swapcase()
    return [ABSOLUTE.sub(r"\1", word) for word in words]
