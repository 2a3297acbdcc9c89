"""What corpus=study leaves out, and of what its splits consist, in its tokens (docs/corpora.md).

python benchmarks/documents.py
"""

import re
from collections import Counter

from ablate.compose.sweep import compose
from ablate.data.corpora import SPLITS
from ablate.data.corpora.stdlib import DIGITS, TABLES, Stdlib, digits, sources
from ablate.data.corpus import open_corpus
from ablate.data.division import paragraphs, placed
from ablate.data.text import of_files

TESTS = re.compile(r"(^|/)(tests?|idle_test)/")


def main() -> None:
    corpus = open_corpus(compose(["corpus=study"]).configs(()).corpus)
    assert isinstance(corpus.recipe, Stdlib)

    def tokens(text: str) -> int:
        return len(corpus.tokenizer.encode(text))

    left_out, everything = Counter[str](), 0
    for document in of_files([*sources(tests=True).values()], "utf-8", "replace").documents():
        tables = [one for one in TABLES if document.name.startswith(one)]
        everything += (count := tokens(document.text))
        left_out[(tables or ["digits" if digits(document.text) > DIGITS else ""])[0]] += count
    print({name: f"{count / everything:.2%}" for name, count in left_out.items()})

    documents = [*corpus.recipe.text().documents()]
    # The first of equal paragraphs counts.
    name_of = {text: one.name for one in reversed(documents) for text in paragraphs(one.text)}
    units, split_U = placed(documents, corpus.config.splits, whole=True, unique=True)
    for number, split in enumerate(SPLITS):
        texts: dict[str, list[str]] = {}
        for paragraph in (unit for unit, at in zip(units, split_U, strict=True) if at == number):
            texts.setdefault(name_of[paragraph], []).append(paragraph)
        counts = {name: tokens("".join(of)) for name, of in texts.items()}
        tests = sum(count for name, count in counts.items() if TESTS.search(name))
        total, largest = sum(counts.values()), max(counts, key=counts.__getitem__)
        print(
            f"{split}: {total:,} tokens, {len(counts):,} documents; tests {tests / total:.1%}; the largest,"
        )
        print(f"  {largest}, {counts[largest] / total:.2%}")


if __name__ == "__main__":
    main()
